"""The command line against a fake gpulift-bench: exit codes, folders, messages, signals."""

from __future__ import annotations

import hmac
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.engine import machine, measuring, packages, runs, schema
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.measuring import Options
from gpulift.ground.errors import GpuliftError
from gpulift.records.parse import read_record
from gpulift.verdicts.decision import DECISION_METHOD
from tests import runs_made, sample

pytestmark = pytest.mark.world

CPU = "cpu-amd-epyc-7b13"
EMPTY_NAME = "the name of a file or folder is empty"


def states(results: Path) -> dict[str, str]:
    """Run folder and state of every run."""
    files = sorted(results.glob("*/*/run.json"))
    return {file.parent.name: json.loads(file.read_text())["state"] for file in files}


def errors(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err


def test_run_writes_a_complete_run_and_prints_its_folder(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "--quick", "--launches", "2", "--arm-time", "0.1"]) == 0
    said = capfd.readouterr()
    folder = Path(said.out.strip())
    assert folder.parent == root / "results" / CPU
    assert folder.name.endswith("-abc1234")
    assert set(states(root / "results").values()) == {"complete"}
    assert "--quick --launches 2 --arm-time 0.1" in said.err
    state = json.loads((folder / "run.json").read_text())
    assert state["options"] == {"quick": True, "launches": 2, "arm_time": 0.1}


def test_a_quick_run_knows_what_the_interpreter_of_the_set_up_lacks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = TechniqueInfo("a/lacking", "", 0, False, (), (), unavailable="no such package")
    last: list[TechniqueInfo] = []

    def within(
        _: float,
        options: Options,
        known: Sequence[TechniqueInfo],
        *__: object,
        verbose: bool = False,
    ) -> Options:
        last.append(known[-1])
        return options

    monkeypatch.setattr(measuring, "within", within)
    monkeypatch.setattr(packages, "with_missing", lambda infos, _: [*infos, lacking])
    assert cli.main(["run", "--quick"]) == 0
    assert cli.main(["qualify", "--quick", "--out", str(root / "qualified")]) in (0, 5)
    assert last == [lacking, lacking]
    assert cli.main(["run", "--quick", "--python", sys.executable]) == 0
    assert last[2] != lacking, "another one may have it"


def test_a_complete_run_leads_to_a_new_folder(root: Path) -> None:
    for _ in range(3):
        assert cli.main(["run"]) == 0
    names = list(states(root / "results"))
    assert [name.partition("abc1234")[2] for name in names] == ["", "-2", "-3"]


def test_a_filter_reaches_gpulift_bench(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "transfer/.*", "--seed", "7", "--precision", "0.01"]) == 0
    assert "--benchmark_filter=transfer/.* --precision 0.01 --seed 7" in errors(capfd)


def test_a_broken_run_goes_on_with_another_timeout(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_BENCH", "full")
        assert cli.main(["run"]) == 1
    assert cli.main(["run", "--timeout", "600"]) == 0
    assert "--timeout 600" in errors(capfd)
    assert list(states(root / "results").values()) == ["complete"]


def test_another_interpreter_reaches_gpulift_bench_and_its_path_no_record(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert cli.main(["run", "--python", str(tmp_path / "env")]) == 0
    said = capfd.readouterr()
    assert f"--python {python}" in said.err
    (given,) = json.loads((Path(said.out.strip()) / "run.json").read_text())["options"].items()
    keyed = hmac.new(measuring.BOOT_ID.read_bytes(), str(python).encode(), "sha256").hexdigest()[:8]
    assert given == ("python", keyed)


@pytest.mark.parametrize(
    ("behaviour", "code", "state"),
    [("failed", 1, "complete"), ("nothing", 77, "complete"), ("full", 1, "running")],
)
def test_exit_codes_pass_through(
    root: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, code: int, state: str
) -> None:
    monkeypatch.setenv("FAKE_BENCH", behaviour)
    assert cli.main(["run"]) == code
    assert set(states(root / "results").values()) == {state}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "pined_copy"], "'pined_copy'; near it: transfer/pinned_copy"),
        (["run", "--filter", "-."], "'-.'; ./gpulift list shows all"),
        (["run", "--quick", "--filter", "^alocator/"], "near it: allocator/host_malloc"),
        (["qualify", "--quick", "--filter", "nothing"], "the filter 'nothing'"),
        (["qualify", "--filter", "jemaloc"], "near it: jemalloc"),
        (["list", "pined_copy"], "near it: transfer/pinned_copy"),
        (
            ["run", "--quick", "pinned_copy/bytes:4096"],
            "no quick case matches the filter 'pinned_copy/bytes:4096'; without --quick 1 case"
            " would be measured",
        ),
        (["run", "a", "--filter", "b"], "give one filter; a|b selects both"),
        (["list", "a", "--filter", "b"], "give one filter; a|b selects both"),
        (["gate", "--base", "HEAD", "a", "--filter", "b"], "give one filter; a|b selects both"),
    ],
)
def test_a_filter_that_selects_nothing_names_what_is_near_and_makes_nothing(
    root: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(arguments) == 2
    assert words in errors(capfd).splitlines()[-1]
    assert not (root / "results" / CPU).exists()


def test_every_command_says_the_same_of_its_filter(capfd: pytest.CaptureFixture[str]) -> None:
    said = set()
    for command in ("run", "list", "qualify", "gate", "compare", "cost", "report"):
        assert cli.main([command, "--help"]) == 0
        told = " ".join(capfd.readouterr().out.split())
        (found,) = re.findall(r"--filter REGEX (.*? leaves it out\.)", told)
        said.add(found)
    assert len(said) == 1


def test_the_version_names_commit_schema_and_methods(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--version"]) == 0
    versions = f"schema {schema.VERSION}, method {schema.METHOD}, decision method {DECISION_METHOD}"
    assert capfd.readouterr().out == f"gpulift abc1234, {versions}\n"
    (root / "build" / "gpulift-bench").unlink()
    assert cli.main(["--version"]) == 0
    assert capfd.readouterr().out == f"gpulift not built, {versions}\n"


@pytest.mark.parametrize(
    ("line", "goes_on"),
    [
        ("./gpulift co", ["compare", "cost"]),
        ("./gpulift se", ["setup"]),
        ("./gpulift compare --al", ["--all"]),
        ("./gpulift run tran", ["transfer/pinned_copy"]),
        ("./gpulift qualify --qui", ["--quick"]),
    ],
)
def test_a_shell_completes_commands_options_and_techniques(
    root: Path, line: str, goes_on: list[str]
) -> None:
    (root / "build" / "modules").mkdir()
    (root / "build" / "modules" / "transfer.pinned_copy.json").touch()
    at = str(len(line.split()) - 1)
    asked = {"_GPULIFT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": at}
    done = subprocess.run(
        [sys.executable, "-m", "gpulift"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (goes_on, "")


def completion(home: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    """From a shell that nothing completes for, as in an image."""
    command = ["sh", "-c", '"$0" -m gpulift "$@"; exit $?', sys.executable, *asked]
    environment = {**os.environ, "HOME": str(home)}
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


def test_a_shell_is_told_the_name_that_it_looks_up(tmp_path: Path) -> None:
    """Bash looks `./gpulift` up by what stands behind its last slash."""
    done = completion(tmp_path, "--show-completion", "bash")
    assert done.stdout.endswith("complete -o default -F _gpulift_completion gpulift\n")
    assert "_GPULIFT_COMPLETE=complete_bash $1" in done.stdout
    assert completion(tmp_path, "--install-completion", "bash").returncode == 0
    assert (tmp_path / ".bash_completions" / "gpulift.sh").read_text("utf-8") in done.stdout


@pytest.mark.parametrize("asked", [(), ("tcsh",)])
def test_a_shell_that_completes_nothing_is_asked_for_another(
    tmp_path: Path, asked: tuple[str, ...]
) -> None:
    done = completion(tmp_path, "--install-completion", *asked)
    assert done.returncode == 2
    assert re.search("'(|sh|dash|tcsh)' is not one of 'bash', 'zsh', 'fish'", done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_usage_error_leaves_no_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BENCH", "usage")
    assert cli.main(["run", "--precision", "2"]) == 2
    assert list((root / "results" / CPU).iterdir()) == []


def test_a_gpu_that_is_not_there_is_refused_before_a_run(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "--gpu", "9"]) == 2
    assert "--gpu 9: no NVIDIA driver on this machine; install" in errors(capfd)
    assert not (root / "results" / CPU).exists()


@pytest.mark.parametrize(
    ("given", "reaches"),
    [
        ("GPU-b1", "--gpu 1"),
        ("0,GPU-b1", "--gpus 0,1"),
        ("1", "--gpu 1"),
        ("1,0", "--gpus 1,0"),
        ("all", "--gpus 0,1"),
    ],
)
def test_a_gpu_is_named_by_its_uuid_too(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    given: str,
    reaches: str,
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["run", "--gpu", given]) == 0
    said = capfd.readouterr()
    assert f" {reaches} " in said.err
    assert "GPU-b" not in (Path(said.out.strip()) / "run.json").read_text(), "it is private"


def test_commands_of_one_gpu_take_a_uuid(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["qualify", "--gpu", "GPU-a1"]) in (0, 1, 5)
    (state,) = (root / "results").glob("nvidia-h200/*/run.json")
    assert json.loads(state.read_text())["options"]["gpu"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--gpu", "GPU-c"], "--gpus GPU-c: no such UUID"),
        (["run", "--gpu", "H200"], "--gpus H200: name a GPU by its index, as 0, or by its UUID"),
        (["run", "--gpus", "0,0"], "--gpus 0,0: name each GPU once"),
        (["qualify", "--gpu", "0,1"], "--gpu 0,1: name a GPU by its index"),
        (["qualify", "--gpu", "-1"], "--gpu -1: name a GPU by its index"),
        (["qualify", "--gpu", ""], "--gpu : name a GPU by its index"),
    ],
)
def test_a_gpu_of_no_such_name_is_refused_in_one_line(
    root: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(arguments) == 2
    (line,) = errors(capfd).splitlines()
    assert words in line
    assert not (root / "results" / CPU).exists()


def test_a_run_without_a_record_leaves_no_folder_and_names_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "empty")
    assert cli.main(["run", "model/resnet"]) == 77
    said = capfd.readouterr()
    assert said.out == ""
    assert "nothing was recorded, so " in said.err.splitlines()[-1]
    assert states(root / "results") == {}


def broken_off(results: Path, want: runs.Wanted) -> None:
    """Leaves a run with a record."""
    with runs.choose(results, want) as chosen:
        runs.save_state(chosen.path, want, runs.RUNNING)
        sample.write(chosen.path, runs_made.without_gpu()[:1])


def goes_on(results: Path, want: runs.Wanted) -> bool:
    with runs.choose(results, want) as chosen:
        return chosen.resumed


def test_two_commands_at_once_choose_two_folders(tmp_path: Path) -> None:
    want = runs.Wanted("model", "abc1234", False, {})
    with runs.choose(tmp_path, want) as first, runs.choose(tmp_path, want) as second:
        assert first.path != second.path
        assert first.path.is_dir()
        assert second.path.is_dir()
    assert list((tmp_path / "model").iterdir()) == [], "nothing was measured"


def test_nobody_goes_on_with_what_another_command_measures(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child = start(root)
    assert cli.main(["run"]) == 0
    own = Path(capfd.readouterr().out.strip())
    assert sorted(states(root / "results").values()) == ["complete", "running"]
    (other,) = (name for name in states(root / "results") if name != own.name)
    out = own.with_name(other)
    assert cli.main(["run", "--out", str(out)]) == 2
    assert "another command is busy with it" in errors(capfd)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert cli.main(["run"]) == 0
    assert f"going on with {out}" in errors(capfd)


def test_a_run_that_cannot_start_leaves_no_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise GpuliftError("cannot be started")

    monkeypatch.setattr(machine, "measure", refuse)
    assert cli.main(["run"]) == 2
    assert list((root / "results" / CPU).iterdir()) == []


def test_other_conditions_do_not_resume(root: Path) -> None:
    context = read_record({**runs_made.without_gpu()[0]}).context
    slow = replace(context, build=replace(context.build, link_flags="-Wl,-z,lazy"))
    preloaded = replace(context, environment={"LD_PRELOAD": "libjemalloc.so.2"})
    bench = root / "build" / "gpulift-bench"
    first = runs.wanted(context, {}, bench)
    broken_off(root / "results", first)
    assert goes_on(root / "results", first)
    other = replace(
        context, build=replace(context.build, commit="abc1234"), options={"quick": True}
    )
    assert goes_on(root / "results", runs.wanted(other, {}, bench))
    for one in (slow, preloaded):
        assert not goes_on(root / "results", runs.wanted(one, {}, bench))


@pytest.mark.parametrize("build", [{"dirty": True}, {"commit": "unknown"}])
def test_a_build_whose_commit_does_not_tell_its_code_goes_on_only_with_its_own_run(
    root: Path, build: dict[str, object]
) -> None:
    context = read_record({**runs_made.without_gpu()[0]}).context
    context = replace(context, build=replace(context.build, **build))  # type: ignore[arg-type]
    bench = root / "build" / "gpulift-bench"
    first = runs.wanted(context, {}, bench)
    broken_off(root / "results", first)
    assert goes_on(root / "results", first)
    bench.write_text("other code", encoding="utf-8")
    assert not goes_on(root / "results", runs.wanted(context, {}, bench))


def test_a_broken_off_run_is_resumed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "crash")
    assert cli.main(["run"]) == 1
    said = errors(capfd)
    assert "SIGSEGV" in said
    assert "2 finished records are kept" in said
    monkeypatch.setenv("FAKE_BENCH", "ok")
    assert cli.main(["run"]) == 0
    assert "going on with" in errors(capfd)
    assert list(states(root / "results").values()) == ["complete"]


@pytest.mark.parametrize(("refusal", "code"), [("other", 4), ("busy", 75)])
def test_a_run_that_was_refused_is_not_said_to_be_gone_on_with(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    refusal: str,
    code: int,
) -> None:
    monkeypatch.setenv("FAKE_BENCH", refusal)
    assert cli.main(["run"]) == code
    assert "goes on" not in errors(capfd)


def test_other_options_do_not_resume(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BENCH", "crash")
    cli.main(["run"])
    monkeypatch.setenv("FAKE_BENCH", "ok")
    assert cli.main(["run", "--quick"]) == 0
    assert sorted(states(root / "results").values()) == ["complete", "running"]


def start(root: Path) -> subprocess.Popen[str]:
    """Starts a run that waits for an interrupt, in a process group of its own."""
    child = subprocess.Popen(
        [sys.executable, "-m", "gpulift", "run"],
        stderr=subprocess.PIPE,
        env={**os.environ, "FAKE_BENCH": "wait"},
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    while "waiting" not in child.stderr.readline():
        assert child.poll() is None
    return child


def test_an_interrupt_is_forwarded_and_what_was_kept_is_said(root: Path) -> None:
    child = start(root)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "interrupts: 1" in said
    assert "interrupted: 2 finished records are kept in" in said
    assert list(states(root / "results").values()) == ["running"]


def test_killing_everything_leaves_a_run_to_go_on_with(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child = start(root)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=30)
    time.sleep(0.1)
    assert cli.main(["run"]) == 0
    assert "going on with" in errors(capfd)


def test_an_unwritable_place_is_one_line(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocked = root / "file"
    blocked.write_text("")
    assert cli.main(["run", "--out", str(blocked / "run")]) == 2
    said = errors(capfd)
    assert said.splitlines()[-1].startswith("gpulift: error: ")
    assert "cannot be written" in said
    assert "Traceback" not in said


def test_a_full_disk_is_one_line_and_exit_1(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(["run"]) == 1
    assert "No space left on device" in errors(capfd).splitlines()[-1]


def test_a_kill_that_left_half_of_run_json_keeps_nobody_out(tmp_path: Path) -> None:
    want = runs.Wanted("model", "abc1234", False, {})
    (tmp_path / ".gpulift-run.json-1.new").write_text('{"mach', encoding="utf-8")
    with runs.choose_named(tmp_path, want) as chosen:
        assert not chosen.resumed
    assert not tmp_path.exists(), "nothing was measured"


def test_out_refuses_a_folder_of_something_else(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "--out", str(root)]) == 2
    assert "is not empty" in errors(capfd)


def test_qualify_without_gpu_shows_committed_results_beside(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sample.write(root / "results/nvidia-h200/2026-11-20-abc1234", runs_made.full_gpu())
    assert cli.main(["qualify", "--quick"]) == 0
    said = capfd.readouterr().out
    assert "measured peaks" in said
    assert "host_memory" in said
    assert "NVIDIA H200" in said
    assert "no NVIDIA driver on this machine" in said
    page = Path(said.split("report:")[1].strip())
    assert page.is_file()
    assert page.with_name("report.md").is_file()
    assert list(page.parent.glob("figures/*.svg"))
    twin = page.with_name("report.md").read_text(encoding="utf-8")
    for text in (said, twin):
        assert "Not judged: nothing that was measured here has a limit" in text
        assert "not judged: no reference values" in text
        assert "judged by computed peaks: no" not in text.partition("**NVIDIA H200**")[0]
        assert "the driver does not say" not in text.partition("**NVIDIA H200**")[0]


def test_qualify_fails_when_a_case_failed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "failed")
    assert cli.main(["qualify"]) == 1
    said = capfd.readouterr().out
    assert "SIGSEGV" in said
    assert "report:" in said


def test_qualify_is_content_when_nothing_could_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "nothing")
    assert cli.main(["qualify"]) == 0
    assert cli.main(["qualify", "--filter", "allocator"]) == 77


def test_qualify_on_a_gpu(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    out = root / "elsewhere"
    assert cli.main(["qualify", "--out", str(out)]) == 0
    assert (out / "report" / "index.html").is_file()
    assert "85.7 %" in capfd.readouterr().out


def test_doctor_names_remedies(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    found = {one["what"]: one for one in json.loads(capfd.readouterr().out)}
    assert found["GPU"]["usable"] is False
    assert found["GPU"]["remedy"]
    assert found["model/resnet"]["remedy"] == "./gpulift setup"
    assert found["NVIDIA driver"]["remedy"].startswith("with a GPU, install"), "there is no card"
    assert {"NVIDIA driver", "LibTorch", "preload libjemalloc.so.2"} <= set(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--launches", "0"], "--launches must be more than 0"),
        (["run", "--python", "none"], "--python none: is neither an interpreter nor a virtual"),
        (["run", "--frob"], "No such option"),
        (["frob"], "No such command"),
        (["check", "dangling"], "dangling/gpu/run/a.b.jsonl: cannot be read: No such file or"),
        (["report", "dangling"], "dangling/gpu/run/a.b.jsonl: cannot be read: No such file or"),
        (["claims", "dangling"], "pinned_copy.jsonl: cannot be read: No such file"),
        (["list", "zzz"], "no case matches the filter 'zzz'; ./gpulift list shows all"),
        (["list", "("], "not a regular expression"),
        (["list", "a{" + "9" * 30 + "}"], "not a regular expression"),
        (["report", "nowhere"], "no such file"),
        (["compare", "empty"], "no records"),
        (["check", "nowhere"], "no such folder"),
        (["check", "empty", "--unfinished"], "--unfinished: goes with --compress alone"),
        (["check", "--compress"], "name the folder of a run"),
        (["check", "--pull-request", "empty", "empty"], "with --pull-request one alone"),
        (["claims", "--filter", "x"], "--filter: goes with --predicted alone"),
        (["claims", "--predicted", "--articles"], "--articles: does not go with --predicted"),
        (["qualify", "--among"], "--among: name RESULTS, folders of what was measured"),
        (["qualify", "--among", "empty", "--quick"], "--quick: does not go with --among"),
        (["qualify", "empty"], "RESULTS are of --among, or --explain alone"),
        (["qualify", "--explain", "roof"], "nothing was qualified here: name RESULTS"),
        (["qualify", "--explain", "roof", "empty"], "no records"),
        (["show", "abcd", "--bibtex", "--again"], "--again: does not go with --bibtex"),
        (["show", "abcd", "--launches", "2"], "--launches: goes with --again alone"),
        (["check", "cut.jsonl"], "cut.jsonl: is a file: name a folder of results"),
        (
            ["compare", "cut.jsonl"],
            "cut.jsonl: there are no records in it: cut.jsonl:1: the last line",
        ),
        (["check", ""], EMPTY_NAME),
        (["compare", ""], EMPTY_NAME),
        (["report", ""], EMPTY_NAME),
        (["export", "csv", ""], EMPTY_NAME),
        (["show", "abcd", "--results", ""], EMPTY_NAME),
        (["report", "empty", "--out", ""], EMPTY_NAME),
        (["report", "empty", "--compare", ""], EMPTY_NAME),
        (["report", "--gate", ""], EMPTY_NAME),
        (["export", "csv", "empty", "--out", ""], EMPTY_NAME),
        (["claims", ""], EMPTY_NAME),
        (["run", "--out", ""], EMPTY_NAME),
        (["run", "--python", ""], "--python : is neither an interpreter nor a virtual"),
        (["qualify", "--out", ""], EMPTY_NAME),
        (["show", "--again", "abcd", "--out", ""], EMPTY_NAME),
        (["gate", "--base", "HEAD", "--out", ""], EMPTY_NAME),
        (["gate", "--base", "HEAD", "--format", "junit="], "--format junit=: names no file"),
        (["gate", "--replay", ""], EMPTY_NAME),
        (["reference", "build", "empty", "--out", ""], EMPTY_NAME),
        (["reference", "build", ""], EMPTY_NAME),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    (root / "empty").mkdir()
    (root / "cut.jsonl").write_text('{"sch', encoding="utf-8")
    (root / "dangling" / "gpu" / "run").mkdir(parents=True)
    for name in ("a.b", "transfer.pinned_copy"):
        (root / "dangling" / "gpu" / "run" / f"{name}.jsonl").symlink_to("nowhere")
    python = root / "bin" / "python"  # the current folder looks like a virtual environment
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.chdir(root)
    assert cli.main(arguments) == 2
    (line,) = errors(capfd).splitlines()
    assert line.startswith("gpulift: error: ")
    assert words in line


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["report", "nowhere"], 2, "gpulift: error: nowhere: there is no such file or folder\n"),
        (["report", "--frob"], 2, "gpulift: error: No such option: --frob\n"),
        (["report", "--help"], 0, "Usage: ./gpulift report [OPTIONS]"),
        (["report", "-h"], 0, "Usage: ./gpulift report [OPTIONS]"),
        (["reference", "show", "-h"], 0, " reference show [OPTIONS]"),
        (["list", "("], 2, "gpulift: error: '(' is not a regular expression"),
    ],
)
def test_a_report_is_called_as_other_commands_are(
    root: Path, arguments: list[str], code: int, words: str
) -> None:
    command = [sys.executable, "-m", "gpulift", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert words in done.stdout + done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_signs_gets_their_numbers(root: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpulift", "doctor"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2717" in done.stdout


def test_no_command_shows_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "qualify" in capfd.readouterr().out


def test_a_missing_build_says_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPULIFT_BUILD", str(root / "nowhere"))
    assert cli.main(["doctor"]) == 2
    assert "./gpulift setup" in errors(capfd)


def test_report_needs_no_build(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPULIFT_BUILD")
    folder = sample.write(root / "results/nvidia-h200/2026-11-20-abc1234", runs_made.full_gpu())
    assert cli.main(["report", str(folder)]) == 0
    assert (folder / "report" / "index.html").is_file()


def test_duets_are_compared_within_one_run(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = sample.write(root / "duet", runs_made.duet(1.005))
    assert cli.main(["duet", str(folder), "--json"]) == 0
    shown = capfd.readouterr()
    rows = json.loads(shown.out)["rows"]
    assert [row["arm"] for row in rows] == ["copy", "triad"]
    assert rows[1]["estimate"]["low"] < 1.005 < rows[1]["estimate"]["high"]
    assert shown.err == "gpulift: duet is called compare now, and goes with the next release\n"
    assert cli.main(["compare", str(folder), "--filter", "triad$"]) == 0
    assert re.search(
        r"measured .*triad: head/base 1\.00\d+, .* launches differ", capfd.readouterr().out
    )
    assert cli.main(["compare", str(folder), "--common"]) == 2
    assert "--common: compares two runs: name HEAD" in errors(capfd)


def test_check_passes_good_records_and_names_bad_ones(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = root / "results/nvidia-h200/2026-11-21-abc1234"
    sample.write(folder, runs_made.full_gpu())
    assert cli.main(["check"]) == 0
    with (folder / "ceiling.gemm.jsonl").open("a") as file:
        file.write('{"schema":"1.0"}\n')
    assert cli.main(["check"]) == 1
    said = errors(capfd)
    assert "ceiling.gemm.jsonl:25: method is missing" in said
