"""`run --within`, `--plan` and `--worth` against a fake gpulift-bench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift import cli
from tests import sample
from tests.commands.test_cli import states

pytestmark = pytest.mark.world

MODEL = "nvidia-h200"
COPIES = "transfer/pinned_copy"


@pytest.fixture
def results(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a run in which 64 KiB took long; on a machine with GPUs."""
    monkeypatch.setenv("FAKE_BENCH", "cases")
    arms = [sample.arm("pageable", 1e-3), sample.arm("pinned", 1e-3)]
    context = sample.gpu_context(build={"commit": "1111111"})
    for size, total_s in ((4096, 1.0), (65536, 40.0)):
        made = sample.launches(
            1, COPIES, {"bytes": size}, arms, context=context, time_s={"total": total_s}
        )
        sample.write(root / "results" / MODEL / "2026-11-20-1111111", made)
    return root / "results"


def cases_in(folder: Path) -> list[tuple[str, int]]:
    files = sorted(folder.glob("*.jsonl"))
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [(one["case_id"], one["launch"]) for one in records]


def test_a_run_within_a_spell_measures_what_fits_and_goes_on_when_called_again(
    results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "pinned", "--within", "150s"]) == 0
    said = capfd.readouterr()
    folder = Path(said.out.strip())
    assert cases_in(folder) == [("bytes:4096", launch) for launch in range(3)]
    assert f"left: 1 case, 123 s: {COPIES}/bytes:65536 123 s; the same command" in said.err
    assert states(results) == {folder.name: "running"}
    assert cli.main(["run", "pinned", "--within", "1500"]) == 0
    said = capfd.readouterr()
    assert f"going on with {folder}" in said.err
    assert "whole: 2 of 2 cases" in said.err
    assert [one for one in cases_in(folder) if one[0] == "bytes:65536"] == [
        ("bytes:65536", launch) for launch in range(3)
    ]
    assert states(results) == {folder.name: "complete"}


def test_a_plan_measures_nothing_and_needs_no_gpu(
    results: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "ok")
    assert cli.main(["run", "--plan", "--within", "150s"]) == 0
    said = capfd.readouterr()
    assert f"by records of {MODEL}" in said.err
    assert [line.split() for line in said.out.splitlines()[1:4]] == [
        ["6", "6", f"{COPIES}/bytes:4096"],
        ["123", "-", f"{COPIES}/bytes:65536"],
        ["?", "6", "allocator/host_malloc/threads:2/sizes:collate", "(no", "record", "tells)"],
    ]
    assert not states(results)
    assert cli.main(["run", "pinned", "--plan", "--model", "h100"]) == 0
    said = capfd.readouterr()
    assert "by records of h100" in said.err
    assert f"{COPIES}/bytes:4096  (by {MODEL})" in said.out


def test_worth_asks_for_what_records_lack_until_they_have_it(
    results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "allocator", "--worth"]
    assert cli.main([*command, "--plan"]) == 0
    assert "launches of today: 0 of 3" in capfd.readouterr().out
    assert cli.main(command) == 0
    assert len(cases_in(Path(capfd.readouterr().out.strip()))) == 3
    assert cli.main(command) == 0
    said = capfd.readouterr()
    assert "records lack nothing of it" in said.err
    assert not said.out


def test_what_cannot_run_here_is_said(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "--plan"]) == 0
    assert "left out: 2 techniques cannot run here" in capfd.readouterr().err
    assert cli.main(["run", "pinned", "--within", "5m"]) == 77
    assert "1 technique cannot run here: ./gpulift doctor says why" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--within", "45s"], "60 s of it are kept for writing"),
        (["--within", "soon"], "--within soon: give a time above 0"),
        (["--within", "5m", "--quick"], "--quick: not with --within"),
        (["--plan", "--ranks", "given"], "--ranks: not with --within"),
        (["--model", "h200"], "give --plan, too"),
        (["--within", "5m", "nowhere"], "no case matches the filter"),
    ],
)
def test_what_makes_no_sense_is_refused(
    root: Path, capfd: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    assert cli.main(["run", *options]) == 2
    assert why in capfd.readouterr().err
