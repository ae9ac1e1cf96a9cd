"""The launcher: what it sets up, when, and what it leaves alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SETUP, Sandbox

WRITE_STATE = """
python=$(dirname "$0")/python; bin=$(dirname "$0")
printf 'python=%s\\nbin_path=%s\\nnvcc=%s\\ntoolkit_root=/\\nwith_torch=OFF\\n' "$python" "$bin" "$python" > "$3"
"""


@pytest.fixture
def launcher(sandbox: Sandbox) -> Sandbox:
    """A machine whose set-up is faked and logged; `python` logs how the command line is called."""
    sandbox.script(sandbox.root / "setup" / "system_packages", 'echo packages >> "$LOG"')
    sandbox.fake("python3", 'echo "$(basename "$1") $2" >> "$LOG"' + WRITE_STATE)
    sandbox.fake("python", 'echo "python $*" >> "$LOG"')
    sandbox.fake("basename", 'echo "${1##*/}"')
    return sandbox


def test_first_call_sets_up_and_later_calls_do_not(launcher: Sandbox) -> None:
    assert launcher.call("gpulift", "report", "some folder").returncode == 0
    assert launcher.lines() == ["packages", "environment.py prepare", "python -m gpulift report some folder"]
    assert launcher.call("gpulift", "report", "x").returncode == 0
    assert launcher.lines()[3:] == ["python -m gpulift report x"]


def test_interrupted_set_up_is_not_used_and_the_next_call_sets_up_again(launcher: Sandbox) -> None:
    launcher.fake("python3", 'echo "broken" >> "$LOG"; exit 1')
    assert launcher.call("gpulift", "report", "x").returncode == 1
    assert launcher.lines() == ["packages", "broken"]
    launcher.fake("python3", 'echo "whole" >> "$LOG"' + WRITE_STATE)
    assert launcher.call("gpulift", "report", "x").returncode == 0
    assert launcher.lines()[2:] == ["packages", "whole", "python -m gpulift report x"]


def test_a_changed_lock_file_sets_up_again(launcher: Sandbox) -> None:
    launcher.call("gpulift", "report", "x")
    with (launcher.root / "setup" / "requirements-base.txt").open("a") as lock:
        lock.write("# changed\n")
    launcher.call("gpulift", "report", "x")
    assert launcher.lines().count("packages") == 2


@pytest.mark.parametrize("name", ["GPULIFT_TORCH", "CUDACXX"])
def test_another_choice_sets_up_again(launcher: Sandbox, name: str) -> None:
    launcher.call("gpulift", "report", "x")
    launcher.call("gpulift", "report", "x", **{name: "off"})
    assert launcher.lines().count("packages") == 2


def test_a_vanished_python_sets_up_again(launcher: Sandbox) -> None:
    launcher.call("gpulift", "report", "x")
    (launcher.bin / "python").unlink()
    launcher.call("gpulift", "report", "x")
    assert launcher.lines().count("packages") == 2


def test_two_calls_at_once_set_up_once(launcher: Sandbox) -> None:
    launcher.fake("python3", 'echo "set-up" >> "$LOG"; sleep 0.5' + WRITE_STATE)
    command = [str(launcher.root / "gpulift"), "report", "x"]
    calls = [subprocess.Popen(command, env=launcher.environment(), stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [call.wait(timeout=60) for call in calls] == [0, 0]
    assert launcher.lines().count("set-up") == 1
    assert launcher.lines().count("python -m gpulift report x") == 2


def test_named_python_is_the_one_that_sets_up(launcher: Sandbox) -> None:
    launcher.fake("mine", 'echo "mine $2" >> "$LOG"' + WRITE_STATE)
    assert launcher.call("gpulift", "report", "x", GPULIFT_PYTHON="mine").returncode == 0
    assert "mine prepare" in launcher.lines()


def test_a_named_python_that_is_not_there_is_a_clear_error(launcher: Sandbox) -> None:
    result = launcher.call("gpulift", "report", "x", GPULIFT_PYTHON="/nowhere/python3")
    assert result.returncode == 2
    assert "GPULIFT_PYTHON=/nowhere/python3 is no program" in result.stderr


def test_unknown_command_changes_nothing(launcher: Sandbox) -> None:
    result = launcher.call("gpulift", "qualfy")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert launcher.lines() == []
    assert not (launcher.root / ".setup").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["help"],
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


@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_help_of_a_command_needs_no_build(launcher: Sandbox, asked: str) -> None:
    launcher.call("gpulift", "report", "x")
    assert launcher.call("gpulift", "run", asked).returncode == 0
    assert launcher.lines()[-1] == f"python -m gpulift run {asked}"
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
    return launcher


def test_setup_says_when_all_is_there_and_measures_nothing(builder: Sandbox) -> None:
    done = builder.call("gpulift", "setup")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        0,
        "gpulift: ready; ./gpulift doctor says what can run here",
    )
    assert not [line for line in builder.lines() if line.startswith("python -m")]
    builder.fake("ninja", "exit 1")
    broken = builder.call("gpulift", "setup")
    assert (broken.returncode, broken.stderr.splitlines()[-1]) == (1, "gpulift: the build failed")


def test_only_a_build_with_something_to_compile_is_announced(builder: Sandbox) -> None:
    def announced(plan: str) -> bool:
        builder.fake("ninja", f'[[ $* != *" -n "* ]] || printf "{plan}"')
        done = builder.call("gpulift", "list")
        assert done.returncode == 0, done.stderr
        return "building (minutes the first time)" in done.stderr

    commit = "[1/3] Building CXX object core/__/generated/build_info.cpp.o\\n[2/3] Linking CXX x\\n"
    assert not announced(commit)
    assert not announced("ninja: no work to do.\\n")
    assert announced(commit + "[3/3] Building CUDA object kernels/fill.cu.o\\n")


def test_a_bench_of_a_script_builds_the_program_alone(builder: Sandbox) -> None:
    builder.fake("ninja", 'echo "ninja ${*: -1}" >> "$LOG"')
    for command in ("bench", "run"):
        assert builder.call("gpulift", command, "x.py").returncode == 0
    built = [line.removeprefix("ninja ") for line in builder.lines() if line.startswith("ninja ")]
    first = built.index("gpulift-bench")
    assert built[first + 1] == "gpulift-bench", "the dry run, and the build"
    assert built.count("gpulift-bench") == 2


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


def test_without_libtorch_there_is_nothing_to_leave_out(builder: Sandbox) -> None:
    assert built(builder, "qualify", "--quick") == "techniques"


def configured(builder: Sandbox, capabilities: str) -> int:
    """How often a call configures with these GPUs."""
    before = builder.lines().count("cmake")
    builder.fake("nvidia-smi", f"printf '{capabilities}'")
    result = builder.call("gpulift", "list")
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
    assert builder.call("gpulift", "list").returncode == 0
    assert builder.lines().count("cmake") == 1
    assert configured(builder, "9.0\\n") == 1
    (builder.bin / "nvidia-smi").unlink()
    assert builder.call("gpulift", "list").returncode == 0
    assert builder.lines().count("cmake") == 2


def test_download_without_a_folder_is_a_usage_error(launcher: Sandbox) -> None:
    assert launcher.call("gpulift", "setup", "--download").returncode == 2
    assert launcher.call("gpulift", "setup", "--downlaod", "x").returncode == 2
    assert launcher.lines() == []


def test_launcher_and_command_line_know_the_same_commands() -> None:
    code = (
        "from gpulift.cli import app\n"
        "for c in app.registered_commands: print(c.name or c.callback.__name__)\n"
        "for group in app.registered_groups: print(group.typer_instance.info.name)"
    )
    scripts = SETUP.parent / "scripts"
    listed = subprocess.run([sys.executable, "-c", code], cwd=scripts, capture_output=True, text=True, check=True)
    launcher = Path(SETUP.parent / "gpulift").read_text()
    known = re.search(r"^  (qualify \| [a-z| ]+)\) ;;$", launcher, re.MULTILINE)
    assert known is not None
    assert set(known[1].split(" | ")) - {"test", "setup"} == set(listed.stdout.split())
