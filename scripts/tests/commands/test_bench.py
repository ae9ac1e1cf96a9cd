"""`gpulift bench SCRIPT` against a fake gpulift-bench, with the real worker's manifest."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.analysis.summary import Summary, summarise
from gpulift.commands import bench
from gpulift.engine import runs
from gpulift.ground.errors import FAILED, write_error
from gpulift.records.read import read_results
from gpulift.report import bench as shown
from gpulift.report import page
from tests import sample
from tests.conftest import CHECKOUT
from tests.engine.test_techniques import SCRIPT

pytestmark = pytest.mark.world


@pytest.fixture
def script(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in a folder of its own, which is the current one."""
    (root / "core").mkdir()
    (root / "core" / "python").symlink_to(CHECKOUT / "core" / "python")
    file = root / "own" / "my_step.py"
    file.parent.mkdir()
    file.write_text(SCRIPT, encoding="utf-8")
    monkeypatch.chdir(file.parent)
    return file


def test_a_script_is_measured_and_shown(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "my_step.py"]) == 0
    said = capfd.readouterr()
    assert "--launches 3 --arm-time 1.0 --modules" in said.err
    assert "--timeout 960.0" in said.err, "time to compile a model"
    plain, other = (line for line in said.out.splitlines() if "not checked" in line)
    assert "bench/my_step on AMD EPYC 7B13" in said.out
    assert plain.split()[0] == "plain"
    assert "158 images/s" in plain
    assert "×" not in plain, "the first arm is what the others are held against"
    assert "25" in other
    assert "▲ 2.0" in other
    assert "against plain" in other
    (report,) = script.parent.glob("gpulift-results/cpu-*/*/report/index.html")
    assert f"report: {report.relative_to(script.parent)}" in said.out
    assert f"records: {report.parents[1].relative_to(script.parent)}" in said.out
    assert re.fullmatch(
        r"other ran 2\.0\d* \[.*\] times as fast as plain", said.out.splitlines()[-1]
    )


def test_options_reach_gpulift_bench(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    options = ["--launches", "2", "--arm-time", "0.5", "--gpus", "0,1", "--scratch", "."]
    options += ["--timeout", "30"]
    assert cli.main(["bench", str(script), "--out", "there", *options]) == 0
    said = capfd.readouterr().err
    assert "--records there --gpus 0,1 --launches 2 --arm-time 0.5 --scratch ." in said
    kept = json.loads((script.parent / "there" / "run.json").read_text())["options"]
    assert "--timeout 30.0" in said
    assert kept["gpus"] == [0, 1]
    assert "timeout" not in kept, "a run goes on with another"
    assert kept["modules"].startswith("bench.my_step-")
    assert kept["scratch"] != ".", "a path is private"


def test_one_gpu_is_named_as_ever(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["bench", str(script), "--gpus", "1"]) == 0
    assert "--gpu 1" in capfd.readouterr().err


def test_a_run_that_broke_off_goes_on_only_with_the_same_script_and_files_beside_it(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    helper = script.with_name("model.py")
    helper.write_text("SIZE = 3\n", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_BENCH", "crash")
        assert cli.main(["bench", str(script)]) == 1
    for file, changed in ((script, SCRIPT.replace("other", "third")), (helper, "SIZE = 4\n")):
        before = file.read_text(encoding="utf-8")
        file.write_text(changed, encoding="utf-8")
        assert cli.main(["bench", str(script)]) == 0
        assert "going on with" not in capfd.readouterr().err
        file.write_text(before, encoding="utf-8")
    assert cli.main(["bench", str(script)]) == 0
    assert "going on with" in capfd.readouterr().err


@pytest.mark.parametrize("out", [(), ("--out", "there")])
def test_a_report_that_failed_is_made_by_the_same_command_which_measures_nothing_again(
    script: Path,
    out: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def full(content: str, file: Path) -> None:
        raise write_error(file, OSError(errno.ENOSPC, "No space left on device"))

    command = ["bench", str(script), *out]
    with monkeypatch.context() as patch:
        patch.setattr(page, "write_whole", full)
        assert cli.main(command) == FAILED
    assert "No space left on device" in capfd.readouterr().err
    (state,) = script.parent.rglob("run.json")
    assert json.loads(state.read_text())["state"] == runs.COMPLETE, "its last record is there"
    (records,) = state.parent.glob("*.jsonl")
    before = records.read_bytes()
    assert cli.main(command) == 0
    assert "going on with" in capfd.readouterr().err
    assert (state.parent / runs.PAGE).is_file()
    assert records.read_bytes() == before
    assert json.loads(state.read_text())["state"] == runs.COMPLETE
    assert cli.main(command) == 0
    assert ("going on with" in capfd.readouterr().err) == bool(out), "a new run, unless it is named"


def test_an_arm_that_failed_is_said_with_its_reason(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "failed")
    assert cli.main(["bench", str(script)]) == 1
    said = capfd.readouterr().out
    assert "other: another result" in said
    assert "plain" in said


def test_the_table_has_what_was_measured_of_a_step(tmp_path: Path) -> None:
    arms = [
        sample.arm("eager", 1e-2, power_w=500.0, cpu_cores=1.0, cost={"items": 4.0}),
        sample.arm("compiled", 5e-3, power_w=500.0, cost={"items": 4.0, "item": "token"}),
    ]
    folder = sample.write(tmp_path / "run", sample.launches(3, "own/step", {"n": 1}, arms))
    (run,) = read_results([folder])
    made = bench.table(summarise(run, None))
    columns = {str(column.header): [str(cell) for cell in column.cells] for column in made.columns}
    assert columns["arm"] == ["eager", "compiled"]
    assert columns["case"] == ["n 1", "n 1"]
    named, unnamed = reversed(columns["items per second"])
    assert named.endswith(" tokens/s")
    assert unnamed == "–"
    assert columns["memory"] == ["1.00 MiB", "1.00 MiB"]
    assert columns["CPU per step"][0].startswith("10.")
    assert columns["CPU per step"][1] == "–"
    assert all(joules.endswith(" J") for joules in columns["energy per step"])
    assert columns["ratio"][0] == ""
    assert columns["check"] == ["error 0 of 0 allowed"] * 2


def test_a_column_of_which_nothing_is_known_is_left_out(tmp_path: Path) -> None:
    """As energy where there is no meter."""
    arms = [sample.arm(name, 1e-2) for name in ("eager", "compiled")]
    made = bench.table(made_up(tmp_path / "run", arms))
    headings = [str(column.header) for column in made.columns]
    assert headings == ["case", "arm", "time per step", "memory", "ratio", "check"]


def made_up(folder: Path, arms: list[sample.Json], launches: int = 3, **top: Any) -> Summary:
    """A run of one script."""
    made = sample.launches(launches, "own/step", {"n": 1}, arms, **top)
    (run,) = read_results([sample.write(folder, made)])
    return summarise(run)


ARMS = [sample.arm("eager", 1e-2), sample.arm("slow", 2e-2), sample.arm("compiled", 5e-3)]


def test_the_fastest_arm_of_each_case_has_a_sentence(tmp_path: Path) -> None:
    (line,) = shown.sentences(made_up(tmp_path, ARMS))
    assert re.fullmatch(
        r"n 1: compiled ran 2\.0\d* \[[12]\.\d+, 2\.\d+\] times as fast as eager", line
    )


@pytest.mark.parametrize(
    ("seconds", "launches", "blocks", "end"),
    [
        (5e-3, 3, 8, "] times as fast as eager"),
        (2e-2, 3, 8, "] times as fast as eager: eager is the fastest"),
        (1e-2, 3, 8, "] times as fast as eager: no difference shown"),
        (1e-2, 1, 8, "] times as fast as eager, in one launch: no difference shown"),
        (5e-3, 1, 8, "] times as fast as eager, in one launch"),
        (5e-3, 1, 3, " times as fast as eager: too few blocks for an interval"),
    ],
)
def test_a_sentence_says_what_it_does_not_know(
    tmp_path: Path, seconds: float, launches: int, blocks: int, end: str
) -> None:
    arms = [sample.arm("eager", 1e-2), sample.arm("other", seconds, launch_noise=0.0)]
    (line,) = shown.sentences(made_up(tmp_path, arms, launches, blocks=blocks))
    assert line.endswith(end)


def test_a_quiet_run_has_no_caveats(tmp_path: Path) -> None:
    assert list(shown.caveats(made_up(tmp_path, ARMS))) == []


@pytest.mark.parametrize(
    ("others", "stolen", "words"),
    [
        (1.2, 0.4, "others took 1.6 of 16 cores meanwhile: repeat on a quiet machine"),
        (17.0, 0.0, "others took 17.0 cores meanwhile: repeat on a quiet machine"),
    ],
)
def test_a_busy_host_is_said(tmp_path: Path, others: float, stolen: float, words: str) -> None:
    load = {"own_cores": 0.5, "other_cores": others, "stolen_cores": stolen}
    assert list(shown.caveats(made_up(tmp_path, ARMS, host_load=load))) == [words]


@pytest.mark.parametrize(
    ("launches", "words"),
    [(3, ["n 1: the first launch ended in an error, so the other 2 were not tried"]), (1, [])],
)
def test_launches_that_were_not_tried_are_said(
    tmp_path: Path, launches: int, words: list[str]
) -> None:
    failed = sample.unmeasured("own/step", {"n": 1}, "error", "NameError: rang")
    failed["launches"] = launches
    (run,) = read_results([sample.write(tmp_path, [failed])])
    assert list(shown.caveats(summarise(run))) == words


@pytest.mark.parametrize("growth", [0.1, -0.1])
def test_steps_without_a_pace_are_said(tmp_path: Path, growth: float) -> None:
    summary = made_up(tmp_path, ARMS, drift=lambda window: growth * window)
    said = r"steps of (\w+) took (\S+) times as long at the end of a launch as at its beginning: .*"
    found = re.findall(said, "\n".join(shown.caveats(summary)))
    assert [arm for arm, _ in found] == ["eager", "slow", "compiled"]
    assert all((float(times) > 2) == (growth > 0) for _, times in found)


def test_of_one_launch_alone_that_may_be_noise(tmp_path: Path) -> None:
    launches: list[int] = []

    def drift(window: int) -> float:
        launches.extend([window] * (window == 0))
        return 0.1 * window if len(launches) == 2 else 0.0

    caveats = list(shown.caveats(made_up(tmp_path, ARMS, drift=drift)))
    assert not [one for one in caveats if one.startswith("steps of")]


def test_times_that_do_not_divide_to_the_ratio_are_said(tmp_path: Path) -> None:
    arms = [sample.arm("eager", 1e-2), sample.arm("other", 1.1e-2)]
    # A slower pace ends between the two: it has most windows of one and half of the other's.
    summary = made_up(tmp_path, arms, drift=lambda window: 0.5 if window < 17 else 0.0)
    (line,) = shown.caveats(summary)
    assert line.startswith("1 of 1 ratios differ from time / time: they come from paired samples")
    (row,) = summary.worths
    assert row.time_s.value < row.baseline_time_s.value
    assert row.speedup.value < 1
    assert row.saved_s is not None
    assert row.saved_s < 0, "what is saved is as the ratio has it"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gone.py", None, "gone.py: there is no such file"),
        ("step.cu", "", "step.cu: is no Python file; `./gpulift run --techniques DIR` takes"),
        ("step.py", "ARMS = ['x'\n", "step.py"),
        ("step.py", "import torch\n", "step.py"),
        ("step.py", "ARMS = [1, 2]\n", "step.py"),
    ],
)
def test_what_is_no_technique_is_one_line_and_exit_2(
    script: Path, capfd: pytest.CaptureFixture[str], name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (script.parent / name).write_text(text, encoding="utf-8")
    assert cli.main(["bench", name]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("gpulift: error: ")
    assert words in line
    assert not (script.parent / "gpulift-results").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpus", "0,"], "--gpus 0,: name a GPU by its index, as 0, or by its UUID"),
        (["--gpus", "1,1"], "--gpus 1,1: name each GPU once"),
        (["--gpus", "7"], "--gpu 7: no NVIDIA driver on this machine"),
        (["--scratch", "nowhere"], "--scratch nowhere: is no folder; make it first"),
        (["--launches", "0"], "--launches must be more than 0"),
        (["--timeout", "0"], "--timeout must be more than 0"),
        (["--timeout", "nan"], "--timeout must be more than 0"),
        (["--timeout", "inf"], "--timeout must be more than 0 and finite, not inf"),
    ],
)
def test_options_that_cannot_be_are_refused(
    script: Path, capfd: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert cli.main(["bench", str(script), *options]) == 2
    assert words in capfd.readouterr().err
