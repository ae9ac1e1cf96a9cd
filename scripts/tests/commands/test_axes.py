"""`--axis`: cases that no sweep has, from the command line to what may be made of their records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.claim_rules import CONFIRMED
from gpulift.analysis.claims import NOT_MEASURED
from gpulift.analysis.summary import summarise
from gpulift.commands import again
from gpulift.commands.check import run_complaints
from gpulift.commands.show import lines
from gpulift.engine.again import command_again
from gpulift.ground.errors import USAGE
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests import sample
from tests.analysis.test_claims_judge import case, claim, verdict
from tests.conftest import CHECKOUT

RMS: sample.Json = {"rows": 1048576, "type": "bf16"}


def norm(**top: object) -> sample.Json:
    arms = [sample.arm("eager", 2e-4), sample.arm("fused", 1e-4)]
    return sample.record("fusion/rms_norm", RMS, arms, **top)  # type: ignore[arg-type]


def test_an_axis_reaches_gpulift_bench_and_tells_runs_apart(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "pinned", "--axis", "bytes=8192,16384"]) == 0
    assert "--axis bytes=8192,16384" in capfd.readouterr().err
    (state,) = (root / "results").glob("*/*/run.json")
    assert json.loads(state.read_text())["options"]["axes"] == ["bytes=8192,16384"]


@pytest.mark.parametrize("command", ["run", "list"])
def test_an_axis_that_nothing_has_is_one_line_and_makes_nothing(
    root: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    assert cli.main([command, "--axis", "rows=8"]) == USAGE
    assert capfd.readouterr().err == "gpulift: error: --axis rows: there are bytes, threads\n"
    assert not list((root / "results").glob("*/*/run.json"))


@pytest.mark.usefixtures("root")
def test_list_has_the_cases_that_run_would_measure(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--axis", "bytes=8192", "--json"]) == 0
    (found,) = json.loads(capfd.readouterr().out)
    (only,) = found["cases"]
    assert (only["id"], only["off_sweep"]) == ("bytes:8192", True)
    assert cli.main(["list", "bytes:4096", "--axis", "bytes=8192"]) == USAGE
    assert "no case matches" in capfd.readouterr().err


def test_a_script_of_ones_own_takes_it_too(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / "core").symlink_to(CHECKOUT / "core")
    script = tmp_path / "mine.py"
    script.write_text('ARMS = ["one", "other"]\n')
    assert cli.main(["bench", str(script), "--axis", "rows=8", "--out", str(root / "o")]) == USAGE
    assert "--axis rows: there are" in capfd.readouterr().err


def test_a_case_of_no_sweep_says_so_and_how_it_is_made_again() -> None:
    record = read_record(norm(off_sweep=True))
    assert "of no sweep: --axis asked for it" in "\n".join(lines(record))
    assert "--axis rows=1048576 --axis type=bf16" in command_again(record)
    assert again.options_again(record, 3, None).axes == ("rows=1048576", "type=bf16")
    swept = read_record(norm())
    assert "--axis" not in command_again(swept)
    assert again.options_again(swept, 3, None).axes == ()


def test_it_is_kept_out_of_committed_results(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia-h200" / "2026-11-21-0123456"
    said = {}
    for off in (True, False):
        sample.write(folder, [norm(off_sweep=off)])
        said[off] = "\n".join(run_complaints(folder))
        for file in folder.glob("*.jsonl"):
            file.unlink()
    assert "does not have: --axis asked for it" in said[True]
    assert "--axis" not in said[False]


def test_it_tests_no_claim() -> None:
    assert verdict(claim(), case(1, 2.5)).verdict == CONFIRMED
    assert verdict(claim(), case(1, 2.5, off_sweep=True)).verdict == NOT_MEASURED


def test_it_is_no_roof_of_the_machine() -> None:
    def roofs(**top: object) -> int:
        cost = {"bytes": 65536.0, "roof": "device_memory"}
        arms = [sample.arm("read", 1e-4, cost=cost)]
        made = sample.launches(
            3, "ceiling/device_memory", {"bytes": 65536}, arms, ceiling=True, **top
        )
        return len(summarise(Run(Path("x"), tuple(map(read_record, made)))).roofs)

    assert roofs() == 1
    assert roofs(off_sweep=True) == 0
