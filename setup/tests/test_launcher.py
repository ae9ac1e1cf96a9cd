"""The launcher: what it sets up, when, and what it leaves alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SETUP, Sandbox

WRITE_STATE = """
[[ $2 == prepare ]] || exit 0
python=$(dirname "$0")/python; bin=$(dirname "$0")
{
  printf 'python=%s\\nbin_path=%s\\nnvcc=%s\\ntoolkit_root=/\\nwith_torch=OFF\\n' "$python" "$bin" "$python"
  printf 'needs=%q\\nchosen_python=%q\\nchosen_torch=%q\\n' "$4" "$GPULIFT_PYTHON" "$GPULIFT_TORCH"
  printf 'chosen_nvcc=%q\\nchosen_path=%q\\n' "$CUDACXX" "$PYTHONPATH"
} > "$3"
"""
BUILDS = f'if [[ $2 == */setup/build.py ]]; then exec {sys.executable} "$@"; fi\n'  # what a fake Python does not fake
NOT_SET_UP = "gpulift: nothing is set up here: ./gpulift setup does that, and says first what it installs\n"
TABLE = (SETUP.parent / "scripts" / "gpulift" / "commands.tsv").read_text()
ROWS = [row.split("\t") for row in TABLE.splitlines()]
COMMANDS = {usage.split()[0]: reads for usage, reads, use, _ in ROWS if use != "old"}
OF_LAUNCHER = {"setup", "test", "wheel"}
READING = [name for name, reads in COMMANDS.items() if reads == "yes"]


@pytest.fixture
def launcher(sandbox: Sandbox) -> Sandbox:
    """A machine whose set-up is faked and logged; `python` logs how the command line is called."""
    sandbox.script(sandbox.root / "setup" / "system_packages", 'echo packages >> "$LOG"')
    sandbox.fake("python3", 'echo "$(basename "$1") $2" >> "$LOG"' + WRITE_STATE)
    sandbox.fake("python", BUILDS + 'echo "python ${*/#*scripts/scripts}" >> "$LOG"')
    (sandbox.root / "ci").mkdir()
    sandbox.script(sandbox.root / "ci" / "test", 'echo "tests $*" >> "$LOG"')  # a command that builds nothing first
    sandbox.fake("basename", 'echo "${1##*/}"')
    return sandbox


def test_first_call_sets_up_and_later_calls_do_not(launcher: Sandbox) -> None:
    assert launcher.call("gpulift", "test", "some step").returncode == 0
    assert launcher.lines() == ["packages", "environment.py prepare", "tests some step"]
    assert launcher.call("gpulift", "test", "x").returncode == 0
    assert launcher.lines()[3:] == ["tests x"]


def test_interrupted_set_up_is_not_used_and_the_next_call_sets_up_again(launcher: Sandbox) -> None:
    launcher.fake("python3", 'echo "broken" >> "$LOG"; exit 1')
    assert launcher.call("gpulift", "test", "x").returncode == 1
    assert launcher.lines() == ["packages", "broken"]
    launcher.fake("python3", 'echo "whole" >> "$LOG"' + WRITE_STATE)
    assert launcher.call("gpulift", "test", "x").returncode == 0
    assert launcher.lines()[2:] == ["packages", "whole", "tests x"]


def test_a_changed_lock_file_sets_up_again(launcher: Sandbox) -> None:
    launcher.call("gpulift", "test", "x")
    with (launcher.root / "setup" / "requirements-base.txt").open("a") as lock:
        lock.write("# changed\n")
    launcher.call("gpulift", "test", "x")
    assert launcher.lines().count("packages") == 2


@pytest.mark.parametrize("name", ["GPULIFT_TORCH", "CUDACXX"])
def test_another_choice_sets_up_again(launcher: Sandbox, name: str) -> None:
    launcher.call("gpulift", "test", "x")
    launcher.call("gpulift", "test", "x", **{name: "off"})
    assert launcher.lines().count("packages") == 2


def test_a_vanished_python_sets_up_again(launcher: Sandbox) -> None:
    launcher.call("gpulift", "test", "x")
    (launcher.bin / "python").unlink()
    launcher.call("gpulift", "test", "x")
    assert launcher.lines().count("packages") == 2


@pytest.mark.parametrize("command", READING)
def test_what_only_reads_sets_up_builds_and_waits_for_nothing(builder: Sandbox, command: str) -> None:
    refused = builder.call("gpulift", command, "x.json")
    assert (refused.returncode, refused.stderr) == (2, NOT_SET_UP)
    assert not (builder.root / ".setup").exists()
    assert builder.call("gpulift", "setup").returncode == 0
    before = builder.lines()
    with (builder.root / "setup" / "requirements-base.txt").open("a") as lock:
        lock.write("# changed\n")
    with (builder.root / ".setup" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = builder.call("gpulift", command, "x.json", GPULIFT_TORCH="off", CUDACXX="/another/nvcc")
    assert (done.returncode, done.stderr) == (0, "")
    assert builder.lines() == [*before, f"python scripts {command} x.json"]


@pytest.mark.parametrize("command", ["watch", "advise"])
def test_a_job_gets_the_environment_of_the_call_and_not_that_of_our_python(builder: Sandbox, command: str) -> None:
    builder.call("gpulift", "setup")
    dump = 'tr "\\0" "\\n" <&"$GPULIFT_JOB_ENVIRONMENT" > "$LOG"'
    told = dump + '; echo "ours $PYTHONSAFEPATH ${PYTHONPATH##*/}" >> "$LOG"'
    builder.fake("python", told)
    done = builder.call("gpulift", command, "--", "x", PYTHONPATH="theirs", TEXT="of two\nlines")
    assert (done.returncode, done.stderr) == (0, "")
    *theirs, ours = builder.lines()
    assert {"PYTHONPATH=theirs", f"PATH={builder.bin}", "TEXT=of two", "lines"} <= set(theirs)
    assert not [line for line in theirs if line.startswith(("PYTHONSAFEPATH", "GPULIFT"))]
    assert ours == "ours 1 scripts"


def test_another_shell_finds_what_is_set_up(builder: Sandbox) -> None:
    """Neither nvcc nor another python3 on PATH says what is set up here."""
    builder.fake("nvcc", "")
    assert builder.call("gpulift", "run").returncode == 0
    before = builder.lines()
    (builder.bin / "nvcc").unlink()
    builder.fake("python3", "exit 1")
    assert builder.call("gpulift", "run").returncode == 0
    assert builder.lines() == [*before, "python scripts run"]


def test_choices_stay_until_others_are_made(builder: Sandbox) -> None:
    builder.fake("mine", 'echo "mine" >> "$LOG"' + WRITE_STATE)
    chosen = {"GPULIFT_PYTHON": "mine", "PYTHONPATH": "/some/site", "GPULIFT_TORCH": "off", "CUDACXX": "nvcc"}
    assert builder.call("gpulift", "run", **chosen).returncode == 0
    before = builder.lines()
    assert builder.call("gpulift", "run").returncode == 0
    assert builder.lines() == [*before, "python scripts run"]
    builder.fake("python", 'echo "PYTHONPATH $PYTHONPATH" >> "$LOG"')
    assert builder.call("gpulift", "report").returncode == 0
    assert builder.lines()[-1] == f"PYTHONPATH {builder.root}/scripts:/some/site"
    with (builder.root / "setup" / "requirements-base.txt").open("a") as lock:
        lock.write("# changed\n")
    builder.call("gpulift", "run")
    assert builder.lines().count("mine") == 2, "the choice is kept where all is set up anew"
    assert builder.call("gpulift", "setup").returncode == 0
    assert "environment.py prepare" in builder.lines(), "setup chooses anew"
    assert "chosen_python=''\n" in (builder.root / ".setup" / "state").read_text()


def test_a_choice_that_leads_to_the_same_builds_nothing(builder: Sandbox) -> None:
    assert builder.call("gpulift", "run").returncode == 0
    assert builder.call("gpulift", "run", GPULIFT_TORCH="off").returncode == 0
    assert builder.lines().count("packages") == 2
    assert builder.lines().count("cmake") == 1


def test_a_choice_whose_configuration_failed_leaves_none_that_the_choice_before_would_take(builder: Sandbox) -> None:
    builder.fake("python3", WRITE_STATE.replace('"$bin" "$python"', '"$bin" "$python$CUDACXX"'))
    builder.script(builder.bin / "pythonother", "")
    cmake = (builder.bin / "cmake").read_text()
    assert builder.call("gpulift", "run").returncode == 0
    builder.fake("cmake", "exit 1")
    assert builder.call("gpulift", "run", CUDACXX="other").returncode == 1
    (builder.bin / "cmake").write_text(cmake)
    assert builder.call("gpulift", "run", CUDACXX="").returncode == 0
    assert builder.lines().count("cmake") == 2, "the other one took its cache and its files away"


def test_variables_of_another_python_and_of_a_git_hook_reach_nothing(launcher: Sandbox) -> None:
    hostile = {
        "PYTHONPATH": "/hostile",
        "PYTHONHOME": "/hostile",
        "PYTHONSTARTUP": "/hostile/start.py",
        "PYTHONINSPECT": "1",
        "GIT_DIR": "/hostile/.git",
    }
    show = 'env | grep hostile >> "$LOG"; echo "PYTHONPATH=$PYTHONPATH $PYTHONSAFEPATH$PYTHONINSPECT" >> "$LOG"'
    launcher.script(launcher.root / "ci" / "test", show)
    launcher.fake("python3", 'echo "PYTHONHOME=$PYTHONHOME PYTHONPATH=$PYTHONPATH" >> "$LOG"' + WRITE_STATE)
    assert launcher.call("gpulift", "test", "x", **hostile).returncode == 0
    assert launcher.lines() == ["packages", "PYTHONHOME= PYTHONPATH=", f"PYTHONPATH={launcher.root}/scripts 1"]


@pytest.mark.parametrize(
    ("given", "kept"), [("/some/site", ":/some/site"), (":/a::/b c:", ":/a:/b c"), (":", ""), ("", "")]
)
def test_an_own_python_keeps_its_path_but_never_the_current_folder(launcher: Sandbox, given: str, kept: str) -> None:
    launcher.fake("mine", WRITE_STATE)
    launcher.script(launcher.root / "ci" / "test", 'echo "PYTHONPATH=$PYTHONPATH" >> "$LOG"')
    assert launcher.call("gpulift", "test", "x", GPULIFT_PYTHON="mine", PYTHONPATH=given).returncode == 0
    assert launcher.lines()[-1] == f"PYTHONPATH={launcher.root}/scripts{kept}"


def hanging(builder: Sandbox, body: str) -> subprocess.CompletedProcess[str]:
    """A call where nvidia-smi does this, and whose patience is short."""
    launcher = builder.root / "gpulift"
    launcher.write_text(launcher.read_text().replace("answer_limit_s=20", "answer_limit_s=1"))
    builder.fake("nvidia-smi", body)
    return builder.call("gpulift", "run")


@pytest.mark.parametrize("ignored", ["", "TERM INT HUP"])
def test_an_nvidia_smi_that_hangs_is_given_up_and_said(builder: Sandbox, ignored: str) -> None:
    done = hanging(builder, f"trap '' {ignored}; echo 9.0; while sleep 5; do :; done")
    assert done.returncode == 0
    assert "nvidia-smi has not answered in 1 s; going on without what it would say" in done.stderr
    with (builder.root / ".setup" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_cannot_even_be_killed_holds_neither_the_call_nor_the_lock(builder: Sandbox) -> None:
    builder.fake("timeout", "exec sleep 30")  # as if it waited for a process that the driver holds
    begun = time.monotonic()
    done = hanging(builder, "")
    assert "nvidia-smi has not answered" in done.stderr
    assert time.monotonic() - begun < 25
    with (builder.root / ".setup" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def freeze(builder: Sandbox, *, built: bool) -> None:
    """Makes the checkout one that cannot be written. `test -w` is no test for root, who may write all."""
    if built:
        (builder.root / "build").mkdir(exist_ok=True)
        builder.script(builder.root / "build" / "gpulift-bench", "")
    launcher = builder.root / "gpulift"
    launcher.write_text(launcher.read_text().replace("! -w $file", "1 == 1"))


def test_a_checkout_that_cannot_be_written_is_used_as_it_is(builder: Sandbox) -> None:
    assert builder.call("gpulift", "run").returncode == 0
    freeze(builder, built=True)
    before = builder.lines()
    done = builder.call("gpulift", "run", "--out", "elsewhere")
    said = f"gpulift: {builder.root} cannot be written: what is built there is used as it is\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert builder.call("gpulift", "list").stderr == ""
    assert builder.lines() == [*before, "python scripts run --out elsewhere", "python scripts list"]


def test_a_checkout_that_cannot_be_written_and_lacks_something_is_a_line(builder: Sandbox) -> None:
    freeze(builder, built=False)
    done = builder.call("gpulift", "run")
    assert done.returncode == 2
    assert done.stderr == f"gpulift: {builder.root} cannot be written, and is not set up as this call needs it\n"
    (builder.root / ".setup").mkdir()
    shutil.copy(SETUP.parent / "gpulift", builder.root)
    assert builder.call("gpulift", "test", "x").returncode == 0
    freeze(builder, built=False)
    done = builder.call("gpulift", "run")
    assert done.returncode == 2
    assert done.stderr.endswith("nothing is built there: run ./gpulift setup where it can be\n")
    assert len(done.stderr.splitlines()) == 1


def test_sources_from_the_future_are_said_once_and_dated_back(builder: Sandbox) -> None:
    source = builder.root / "core" / "a file.cpp"
    source.touch()
    assert builder.call("gpulift", "run").returncode == 0
    ahead = time.time() + 1e8
    os.utime(source, (ahead, ahead))
    assert "1 sources are dated in the future, core/a file.cpp first" in builder.call("gpulift", "run").stderr
    assert source.stat().st_mtime <= time.time()
    assert "future" not in builder.call("gpulift", "run").stderr


def test_two_calls_at_once_set_up_once(launcher: Sandbox) -> None:
    launcher.fake("python3", 'echo "set-up" >> "$LOG"; sleep 0.5' + WRITE_STATE)
    command = [str(launcher.root / "gpulift"), "test", "x"]
    calls = [subprocess.Popen(command, env=launcher.environment(), stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [call.wait(timeout=60) for call in calls] == [0, 0]
    assert launcher.lines().count("set-up") == 1
    assert launcher.lines().count("tests x") == 2


def test_of_many_calls_at_once_few_look_at_the_build(builder: Sandbox) -> None:
    assert builder.call("gpulift", "run").returncode == 0
    builder.fake("ninja", 'echo "ninja ${*: -1}" >> "$LOG"; sleep 0.3')
    command = [str(builder.root / "gpulift"), "run"]
    calls = [subprocess.Popen(command, env=builder.environment(), stderr=subprocess.DEVNULL) for _ in range(8)]
    assert [call.wait(timeout=60) for call in calls] == [0] * 8
    at_once = builder.lines().count("ninja techniques")
    assert 1 <= at_once < 8, "the first, and one that was called after it had begun"
    assert builder.call("gpulift", "run").returncode == 0
    assert builder.lines().count("ninja techniques") == at_once + 1, "a later call looks for itself"


def test_what_a_killed_call_left_running_is_waited_for(builder: Sandbox) -> None:
    still = 'echo begun >> "$LOG"; kill -9 $PPID; sleep 1; echo ended >> "$LOG"'
    builder.fake("ninja", f"[[ $* == *build.ninja ]] || {{ {still}; }}")
    assert builder.call("gpulift", "run").returncode == 137
    builder.fake("ninja", '[[ $* == *build.ninja ]] || echo next >> "$LOG"')
    assert builder.call("gpulift", "run").returncode == 0
    assert [line for line in builder.lines() if line in ("begun", "ended", "next")] == ["begun", "ended", "next"]


def test_a_call_that_asks_for_another_build_looks_for_itself(builder: Sandbox) -> None:
    assert builder.call("gpulift", "run").returncode == 0
    builder.fake("ninja", 'echo "ninja ${*: -1}" >> "$LOG"; sleep 0.5')
    commands = [[str(builder.root / "gpulift"), command, "x.py"] for command in ("run", "bench")]
    calls = [subprocess.Popen(command, env=builder.environment(), stderr=subprocess.DEVNULL) for command in commands]
    assert [call.wait(timeout=60) for call in calls] == [0, 0]
    assert {"ninja techniques", "ninja gpulift-bench"} <= set(builder.lines())


def test_named_python_is_the_one_that_sets_up(launcher: Sandbox) -> None:
    launcher.fake("mine", 'echo "mine $2" >> "$LOG"' + WRITE_STATE)
    assert launcher.call("gpulift", "test", "x", GPULIFT_PYTHON="mine").returncode == 0
    assert "mine prepare" in launcher.lines()


def test_a_named_python_that_is_not_there_is_a_clear_error(launcher: Sandbox) -> None:
    result = launcher.call("gpulift", "test", "x", GPULIFT_PYTHON="/nowhere/python3")
    assert result.returncode == 2
    assert "GPULIFT_PYTHON=/nowhere/python3 is no program" in result.stderr


@pytest.mark.parametrize("here", [True, False])
def test_unknown_command_names_what_is_near_where_a_python_can_tell_and_changes_nothing(
    launcher: Sandbox, here: bool
) -> None:
    (launcher.bin / "python3").unlink()
    if here:
        (launcher.bin / "python3").symlink_to(sys.executable)
    result = launcher.call("gpulift", "qualfy")
    assert result.returncode == 2
    hint = ", but these are near it: qualify" if here else ""
    assert result.stderr == f"gpulift: qualfy is no command{hint}; see ./gpulift help\n"
    assert launcher.lines() == []
    assert not (launcher.root / ".setup").exists()


@pytest.mark.parametrize("asked", ["--version", "--install-completion", "--show-completion"])
def test_options_of_the_command_line_itself_only_read(builder: Sandbox, asked: str) -> None:
    before = builder.call("gpulift", asked)
    told = ("gpulift of an unknown commit, not set up\n", 0) if asked == "--version" else ("", 2)
    assert (before.stdout, before.returncode) == told
    builder.call("gpulift", "setup")
    assert builder.call("gpulift", asked).returncode == 0
    assert builder.lines()[-1] == f"python scripts {asked}"


def test_a_fresh_clone_knows_its_commit(launcher: Sandbox) -> None:
    (launcher.root / ".git").mkdir()
    launcher.fake("git", "echo abc1234")
    assert launcher.call("gpulift", "--version").stdout == "gpulift abc1234, not set up\n"


def test_a_shell_that_completes_a_line_asks_the_command_line_and_installs_nothing(builder: Sandbox) -> None:
    asked = {"_GPULIFT_COMPLETE": "complete_bash", "COMP_WORDS": "./gpulift cl", "COMP_CWORD": "1"}
    before = builder.call("gpulift", **asked)
    assert (before.returncode, before.stdout, before.stderr) == (0, "", "")
    builder.call("gpulift", "setup")
    done = builder.call("gpulift", **asked)
    assert (done.returncode, done.stdout) == (0, "")
    assert builder.lines()[-1] == "python scripts"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["help"],
        ["help", "all"],
        ["help", "--help"],
        ["--help", "help"],
        ["--help"],
        ["-h"],
        ["run", "--help"],
        ["qualify", "--quick", "-h"],
        ["reference", "show", "-h"],
        ["test", "--help"],
        ["test", "-h"],
        ["setup", "--help"],
        ["setup", "-h"],
    ],
)
def test_help_needs_no_set_up(launcher: Sandbox, arguments: list[str]) -> None:
    result = launcher.call("gpulift", *arguments)
    assert result.returncode == 0
    assert "usage: ./gpulift <command>" in result.stdout
    assert launcher.lines() == []


def test_help_of_another_word_is_the_help_of_that_command(launcher: Sandbox) -> None:
    assert launcher.call("gpulift", "help", "gat").stderr.startswith("gpulift: gat is no command")
    launcher.call("gpulift", "test", "x")
    launcher.call("gpulift", "help", "run")
    assert launcher.lines()[-1] == "python scripts run --help"


def test_help_fits_on_a_screen_and_names_every_command(launcher: Sandbox) -> None:
    lines = launcher.call("gpulift", "help").stdout.splitlines()
    assert (len(lines) <= 32, max(map(len, lines)) <= 80) == (True, True)
    assert set(COMMANDS) <= set(" ".join(lines).split())


@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_help_of_a_command_needs_no_build(launcher: Sandbox, asked: str) -> None:
    launcher.call("gpulift", "test", "x")
    assert launcher.call("gpulift", "run", asked).returncode == 0
    assert launcher.lines()[-1] == f"python scripts run {asked}"
    for command in ("setup", "test"):
        assert "usage: ./gpulift <command>" in launcher.call("gpulift", command, asked).stdout
    assert not [line for line in launcher.lines() if line.startswith(("cmake", "ninja"))]


@pytest.fixture
def builder(launcher: Sandbox) -> Sandbox:
    """The same with a build that is faked: `cmake` logs that it was called."""
    build = launcher.root / "build"
    launcher.fake("cmake", f'echo cmake >> "$LOG"; mkdir -p {build}; touch {build}/build.ninja')
    launcher.fake("ninja", "")
    launcher.fake("tail", "")
    for folder in ("benches", "core", "kernels", "workloads"):
        (launcher.root / folder).mkdir()
    (launcher.root / "CMakeLists.txt").touch()
    return launcher


def test_setup_says_when_all_is_there_and_measures_nothing(builder: Sandbox) -> None:
    done = builder.call("gpulift", "setup")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        0,
        "gpulift: ready; ./gpulift doctor says what can run here",
    )
    assert not [line for line in builder.lines() if line.startswith("python scripts")]


def test_a_build_that_failed_says_why_where_and_what_helps_and_the_next_call_goes_on(builder: Sandbox) -> None:
    error = "core/a.cpp:1:10: fatal error: cuda_profiler_api.h: No such file or directory"
    builder.fake("ninja", f"[[ $* == *build.ninja ]] || {{ echo '[3/9] Building CXX a.o'; echo '{error}'; exit 1; }}")
    broken = builder.call("gpulift", "setup")
    assert (broken.returncode, broken.stdout) == (1, "")
    *before, failed, first, remedy, log = broken.stderr.splitlines()
    assert (failed, first) == ("gpulift: the build failed after 3 of 9:", f"gpulift:   {error}")
    assert "CUDACXX=packages ./gpulift setup" in remedy
    assert error in Path(log.split(": ")[-1]).read_text()
    assert not [line for line in before if "Building" in line], "what compilers say stands in the log"
    builder.script(builder.root / "build" / "gpulift-bench", "")
    assert (
        f"what was built before is shown; the build failed after 3 of 9:   {error}"
        in builder.call("gpulift", "list").stderr
    )
    builder.fake("ninja", "")
    assert builder.call("gpulift", "setup").returncode == 0
    assert builder.call("gpulift", "list").stderr == ""


def test_the_test_of_a_machine_builds_what_a_quick_qualification_would_and_nothing_else(builder: Sandbox) -> None:
    builder.fake("python3", WRITE_STATE.replace("with_torch=OFF", "with_torch=ON"))
    assert built(builder, "test") == "quick"
    assert builder.lines()[-1].rstrip() == "tests"
    before = len(builder.lines())
    for step in ("all", "format"):
        assert builder.call("gpulift", "test", step).returncode == 0
    assert builder.lines()[before:] == ["tests all", "tests format"]


def test_a_bench_of_a_script_builds_the_program_alone(builder: Sandbox) -> None:
    builder.fake("ninja", 'echo "ninja ${*: -1}" >> "$LOG"')
    for command in ("bench", "run"):
        assert builder.call("gpulift", command, "x.py").returncode == 0
    assert [line for line in builder.lines() if line in ("ninja gpulift-bench", "ninja techniques")] == [
        "ninja gpulift-bench",
        "ninja techniques",
    ]


def test_a_wheel_is_made_of_the_build_that_is_there(builder: Sandbox) -> None:
    assert built(builder, "wheel", "--out", "x") == "techniques"
    assert builder.lines()[-1] == "python scripts/tools/wheel.py --out x"


def test_a_wheel_for_all_gpus_has_a_build_of_its_own(builder: Sandbox) -> None:
    own = builder.root / "build-wheel"
    builder.fake("cmake", f'echo "cmake $*" >> "$LOG"; mkdir -p {own}; touch {own}/build.ninja')
    builder.fake("python", BUILDS + 'echo "python $GPULIFT_BUILD" >> "$LOG"')
    builder.fake("python3", WRITE_STATE.replace("with_torch=OFF", "with_torch=ON"))
    assert builder.call("gpulift", "wheel", "--all-gpus").returncode == 0
    configured, used = builder.lines()[-2:]
    assert f"-B {own} " in configured
    assert "-DGPULIFT_TORCH=OFF -DGPULIFT_ARCHITECTURES=75-real;80-real;" in configured
    assert used == f"python {own}"


def built(builder: Sandbox, *command: str) -> str:
    """The last target that a call builds."""
    builder.fake("ninja", 'echo "ninja ${*: -1}" >> "$LOG"')
    assert builder.call("gpulift", *command).returncode == 0
    return [line for line in builder.lines() if line.startswith("ninja ")][-1].removeprefix("ninja ")


@pytest.mark.parametrize("quick", [("--quick",), ("--quick=60s",), ("--json", "--quick", "5m")])
def test_a_quick_qualification_leaves_libtorch_out_until_some_of_it_was_built(
    builder: Sandbox, quick: tuple[str, ...]
) -> None:
    builder.fake("python3", WRITE_STATE.replace("with_torch=OFF", "with_torch=ON"))
    assert built(builder, "qualify") == "techniques"
    assert built(builder, "qualify", *quick) == "quick"
    assert "./gpulift setup" in builder.call("gpulift", "qualify", *quick).stderr
    library = builder.root / "build" / "workloads" / "torch" / "libgpulift_torch_workloads.a"
    library.parent.mkdir(parents=True)
    library.touch()
    assert built(builder, "qualify", *quick) == "techniques"


def test_a_machine_without_a_gpu_is_looked_at_before_all_else_is_fetched(builder: Sandbox) -> None:
    (builder.root / ".setup" / "first").mkdir(parents=True)
    assert builder.call("gpulift", "qualify", "--quick").returncode == 0
    assert builder.lines()[:3] == ["packages", f"first_look.py {builder.root}", "environment.py prepare"]
    assert not (builder.root / ".setup" / "first").exists(), "the environment has these tools, too"
    assert builder.call("gpulift", "qualify", "--quick", CUDACXX="other").returncode == 0
    assert builder.lines().count(f"first_look.py {builder.root}") == 1, "something is built here"


@pytest.mark.parametrize("command", [("run", "--quick"), ("qualify",), ("qualify", "--quick")])
def test_nobody_else_gets_a_first_look_without_cuda(builder: Sandbox, command: tuple[str, ...]) -> None:
    if command == ("qualify", "--quick"):
        builder.fake("nvidia-smi", "echo 9.0")
    assert builder.call("gpulift", *command).returncode == 0
    assert f"first_look.py {builder.root}" not in builder.lines()


def test_a_first_look_that_fails_is_gone_on_without(builder: Sandbox) -> None:
    builder.fake("python3", "[[ $1 != *first_look.py ]] || exit 1" + WRITE_STATE)
    done = builder.call("gpulift", "qualify", "--quick")
    assert done.returncode == 0
    assert "gpulift: the first look failed; going on without it\n" in done.stderr


def test_a_first_look_that_is_interrupted_ends_the_call(builder: Sandbox) -> None:
    builder.fake("python3", '[[ $1 != *first_look.py ]] || exit 130; echo "$(basename "$1")" >> "$LOG"' + WRITE_STATE)
    done = builder.call("gpulift", "qualify", "--quick")
    assert (done.returncode, done.stderr) == (130, "")
    assert builder.lines() == ["packages"], "nothing is fetched any more"


def test_without_libtorch_there_is_nothing_to_leave_out(builder: Sandbox) -> None:
    assert built(builder, "qualify", "--quick") == "techniques"


@pytest.mark.parametrize(
    ("arguments", "builds"),
    [
        (("gate", "--base", "r", "--", "python", "x.py"), False),
        (("gate", "--base", "r", "--gbench", "b", "--", "-x"), False),
        (("gate", "--base", "r", "--pytest=tests"), False),
        (("gate", "--base", "r", "--", "-input"), True),
        (("gate", "--base", "r", "--"), True),
        (("gate", "--base", "r", "filter"), True),
        (("gate", "--base-python=x", "--head-python=y"), True),
        (("gate", "--base", "r", "no_such.py"), False),
        (("gate", "--replay", "folder"), False),
        (("gate",), False),
        (("qualify", "--gpus", "all", "--explain", "roof"), True),
        (("qualify", "--explain", "roof", "--expect-gpus", "8"), True),
        (("qualify", "--all", "--explain", "roof"), False),
        (("qualify", "--among", "a", "b"), False),
        (("show", "abcd", "--again"), True),
        (("show", "abcd"), False),
        (("verify", "abcd"), True),
        (("verify", "gate.json", "--again"), False),
        (("cite", "abcd"), False),
    ],
)
def test_what_measures_nothing_that_is_built_here_builds_nothing(
    builder: Sandbox, arguments: tuple[str, ...], builds: bool
) -> None:
    builder.fake("ninja", 'echo "ninja ${*: -1}" >> "$LOG"')
    assert builder.call("gpulift", "test", "x").returncode == 0
    assert builder.call("gpulift", *arguments).returncode == 0
    assert ("ninja techniques" in builder.lines()) is builds


def configured(builder: Sandbox, capabilities: str) -> int:
    """How often a call configures with these GPUs."""
    before = builder.lines().count("cmake")
    builder.fake("nvidia-smi", f"printf '{capabilities}'")
    result = builder.call("gpulift", "run")
    assert result.returncode == 0, result.stderr
    return builder.lines().count("cmake") - before


def test_the_build_is_configured_anew_for_a_gpu_that_it_was_not_made_for(builder: Sandbox) -> None:
    assert configured(builder, "9.0\\n9.0\\n8.0\\n") == 1
    for same in ("8.0\\n9.0\\n", "9.0\\n", "No devices were found\\n", ""):
        assert configured(builder, same) == 0
    assert configured(builder, "12.0\\n") == 1
    assert configured(builder, "9.0\\n") == 1
    assert builder.lines().count("packages") == 1, "nothing is set up anew"


def test_a_build_without_a_gpu_is_configured_anew_when_there_is_one(builder: Sandbox) -> None:
    assert builder.call("gpulift", "run").returncode == 0
    assert builder.lines().count("cmake") == 1
    assert configured(builder, "9.0\\n") == 1
    (builder.bin / "nvidia-smi").unlink()
    assert builder.call("gpulift", "run").returncode == 0
    assert builder.lines().count("cmake") == 2


def test_a_release_of_torch_is_asked_for_as_its_variable_does(launcher: Sandbox) -> None:
    launcher.fake("python3", 'echo "$2 $GPULIFT_TORCH" >> "$LOG"')
    for more in (("--needs",), ("--download", "d")):
        assert launcher.call("gpulift", "setup", "--torch", "2.13", *more, GPULIFT_TORCH="off").returncode == 0
    assert launcher.lines() == ["packages", "needs 2.13", "download 2.13", "packages"]
    said = launcher.call("gpulift", "setup", "--torch")
    assert (said.returncode, said.stderr) == (2, "gpulift: setup: --torch needs a release, like 2.13\n")


@pytest.mark.parametrize(("version", "old"), [("570.86.10", True), ("580.65.06", False), ("no devices", False)])
@pytest.mark.parametrize("command", ["doctor", "setup"])
def test_a_driver_that_is_too_old_is_told_before_anything_is_loaded(
    launcher: Sandbox, command: str, version: str, old: bool
) -> None:
    launcher.fake("nvidia-smi", f"[[ $1 == --query-gpu=driver_version ]] && echo '{version}' && echo '{version}'")
    launcher.fake("python3", 'echo "loads" >&2; exit 1')
    said = launcher.call("gpulift", command).stderr.splitlines()
    assert said.pop() == ("loads" if command == "setup" else NOT_SET_UP.strip())
    told = f"gpulift: NVIDIA driver {version} is older than 580, from which on CUDA 13 runs: no GPU can be measured"
    assert said == ([f"{told}; update it"] if old else [])


def test_download_without_a_folder_is_a_usage_error(launcher: Sandbox) -> None:
    assert launcher.call("gpulift", "setup", "--download").returncode == 2
    assert launcher.call("gpulift", "setup", "--downlaod", "x").returncode == 2
    assert launcher.lines() == []


def test_a_download_is_told_for_whom_it_is(launcher: Sandbox) -> None:
    launcher.fake("python3", 'printf "[%s]" "${@:2}" >> "$LOG"')
    assert launcher.call("gpulift", "setup", "--download", "a b").returncode == 0
    more = ("--only", "torch,numpy", "--python-version", "3.12")
    assert launcher.call("gpulift", "setup", "--download", "d", *more).returncode == 0
    assert launcher.lines() == ["[download][a b][][]packages", "[download][d][3.12][torch,numpy]packages"]


@pytest.mark.parametrize("arguments", [("--needs",), ("--download", "d")])
def test_what_is_needed_elsewhere_is_told_while_another_call_builds(
    launcher: Sandbox, arguments: tuple[str, ...]
) -> None:
    launcher.fake("mine", 'echo "$2 $PYTHONDONTWRITEBYTECODE" >> "$LOG"')
    assert launcher.call("gpulift", "setup", *arguments, GPULIFT_PYTHON="mine").returncode == 0
    assert not (launcher.root / ".setup").exists()
    (launcher.root / ".setup").mkdir()
    with (launcher.root / ".setup" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert launcher.call("gpulift", "setup", *arguments, GPULIFT_PYTHON="mine").returncode == 0
    assert launcher.lines().count(f"{arguments[0].removeprefix('--')} 1") == 2


def test_table_and_command_line_know_the_same_commands() -> None:
    code = (
        "from gpulift import cli\n"
        "app = cli.app_of(cli.command_lines())\n"
        "for c in app.registered_commands: print(c.name or c.callback.__name__)\n"
        "for group in app.registered_groups: print(group.typer_instance.info.name)"
    )
    scripts = SETUP.parent / "scripts"
    listed = subprocess.run([sys.executable, "-c", code], cwd=scripts, capture_output=True, text=True, check=True)
    assert COMMANDS.keys() - READING == {"qualify", "bench", "run", "gate", *OF_LAUNCHER}
    assert set(COMMANDS) - OF_LAUNCHER == set(listed.stdout.split())
