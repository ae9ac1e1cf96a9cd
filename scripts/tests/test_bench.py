"""`gpulift bench SCRIPT` against a fake gpulift-bench, with the real worker's manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift import bench, cli
from gpulift.analysis.summary import summarise
from gpulift.records.read import read_results
from tests import sample
from tests.conftest import CHECKOUT
from tests.test_techniques import SCRIPT


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
    plain, other = (line for line in said.out.splitlines() if "not checked" in line)
    assert "own/my_step on AMD EPYC 7B13" in said.out
    assert plain.split()[0] == "plain"
    assert "158 images/s" in plain
    assert "×" not in plain, "the first arm is what the others are held against"
    assert "25" in other
    assert "▲ 2.0" in other
    assert "against plain" in other
    (report,) = script.parent.glob("gpulift-results/cpu-*/*/report/report.html")
    assert f"report: {report.relative_to(script.parent)}" in said.out
    assert f"records: {report.parents[1].relative_to(script.parent)}" in said.out


def test_options_reach_gpulift_bench(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    options = ["--launches", "2", "--arm-time", "0.5", "--gpus", "0,1", "--scratch", "."]
    assert cli.main(["bench", str(script), "--out", "there", *options]) == 0
    said = capfd.readouterr().err
    assert "--records there --gpus 0,1 --launches 2 --arm-time 0.5 --scratch ." in said
    kept = json.loads((script.parent / "there" / "run.json").read_text())["options"]
    assert kept["gpus"] == [0, 1]
    assert kept["modules"].startswith("own.my_step-")
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
    ],
)
def test_options_that_cannot_be_are_refused(
    script: Path, capfd: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert cli.main(["bench", str(script), *options]) == 2
    assert words in capfd.readouterr().err
