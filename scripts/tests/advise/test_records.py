"""Records of processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.advise.evidence import BASELINE, Arm, Check, Failed, Memory, Window
from gpulift.advise.records import records_of, require_new, write
from gpulift.analysis.ledger import read_ledger
from gpulift.analysis.machine.reference_build import build
from gpulift.commands.claims import runs_by_model
from gpulift.ground.errors import FAILED, NOT_COMPARABLE, OK, USAGE, GpuliftError
from gpulift.records.parse import read_record
from gpulift.records.read import Run, read_results, read_run
from gpulift.verdicts import stats
from tests import runs_made, sample
from tests.advise.made import replay, rounds, silent, turn

COMMAND = ("python", "/home/me/train.py", "--secret")
STARTED = "2026-11-21T04:00:00Z"
BROKEN = Arm(arm="bf16", label="BF16", state="failed", why="OOM in /home/me/train.py")
AWAY = Arm(arm="cudnn_search", label="cuDNN", state="not applicable", why="no convolution")
CHECKS = (
    Check(arm="fused", losses=(1.0, 1.0), gradient=1e-3, band=1e-2),
    Check(arm="tf32", gradient=float("nan"), band=1e-2),
)


def test_they_are_read_again(tmp_path: Path) -> None:
    replays = [
        replay({"fused": gain, "tf32": 1.0}, arms=(BROKEN, AWAY), checks=CHECKS)
        for gain in (1.1, 1.2)
    ]
    turns = rounds("workers_8", (1.2, 1.3))
    turns[0] = replace(turns[0], memory=Memory(device_bytes=5, host_bytes=7))
    write(records_of(replays, turns, COMMAND, STARTED), tmp_path / "out")
    (run,) = read_results([tmp_path / "out"])
    replayed = [one for one in run.records if one.technique == "advise/replay"]
    assert [(one.launch, one.launches) for one in replayed] == [(0, 2), (1, 2)]
    pair = stats.pair_ratio(replayed, "fused", BASELINE)
    assert pair is not None
    assert pair.speedup.value == pytest.approx((1.1 * 1.2) ** 0.5)
    arms = {arm.name: arm for arm in replayed[0].arms}
    assert (arms["fused"].check_error, arms["fused"].check_tolerance) == (1e-3, 1e-2)
    assert not arms["tf32"].checked
    assert (arms["bf16"].outcome, arms["cudnn_search"].outcome) == ("failed", "skipped")
    assert arms["cudnn_search"].reason == "no convolution"
    settings = [one.case["setting"] for one in run.records if one.technique == "advise/turn"]
    assert sorted(map(str, settings)) == [BASELINE, BASELINE, "workers_8", "workers_8"]
    (peak,) = (
        one.arms[0].peak_host_bytes for one in run.records if one.arms[0].peak_device_bytes == 5
    )
    assert peak == 7


def test_nothing_of_command_or_script_is_told() -> None:
    failed = replace(silent(), failed=(Failed(why="train.py: KeyError: 'secret'"),))
    made = records_of(
        [replay({}, arms=(BROKEN,))], [failed, turn("omp_8", 0, 1.0)], COMMAND, STARTED
    )
    written = json.dumps(made)
    for part in ("train.py", "secret", "home", "KeyError"):
        assert part not in written
    assert len({record["case"]["command"] for record in made}) == 1
    other = records_of([replay({})], [], ("python", "/home/me/train.py--secret"), STARTED)
    assert other[0]["case"] != made[0]["case"]


def test_what_was_not_measured_is_an_error(tmp_path: Path) -> None:
    write(records_of([silent()], [silent("omp_8")], COMMAND, STARTED), tmp_path / "out")
    (run,) = read_results([tmp_path / "out"])
    assert {record.outcome for record in run.records} == {"error"}
    assert {record.context.host.cpu for record in run.records} == {"unknown"}


def test_windows_of_other_steps_are_told_as_of_as_many() -> None:
    process = replay({})
    longer = Window(
        arm=BASELINE, block=3, place=0, steps=16, seconds=1.6, issued_s=0.8, peak_bytes=0
    )
    process = replace(process, windows=(*process.windows, longer))
    (record,) = records_of([process], [], COMMAND, STARTED)
    (arm,) = record["arms"]
    assert arm["steps_per_window"] == 8
    assert arm["windows"]["host_s"][-1] == pytest.approx(0.8)
    assert record["order"]["blocks"] == [[0, 0]] * 3 + [[0]]


def test_a_script_on_a_processor_names_no_gpu() -> None:
    (record,) = records_of([replay({}, device="cpu")], [], COMMAND, STARTED)
    assert "gpu" not in record["context"]
    assert record["context"]["host"]["cores"] == 16


def test_a_training_that_went_on_replayed_nothing() -> None:
    (record,) = records_of([replay({"fused": 1.1})], (), COMMAND, STARTED, cached=False)
    assert record["technique"] == "advise/live"


# --- Nothing judges them ---


def kept(folder: Path, gains: Sequence[float] = (1.1, 1.2, 1.15, 1.12)) -> Run:
    """Processes of a script as a run folder."""
    processes = [replay({"fused": gain}) for gain in gains]
    write(records_of(processes, [], COMMAND, STARTED), folder)
    return read_run(folder)


def test_show_prints_them_and_cite_refuses_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path / "run")
    assert cli.main(["show", run.records[0].id, "--results", str(run.folder)]) == OK
    shown = capsys.readouterr().out
    assert "kind            import" in shown
    assert "./gpulift run" not in shown
    assert cli.main(["show", "--bibtex", run.records[0].id, "--results", str(run.folder)]) == USAGE
    assert "was imported" in capsys.readouterr().err


def test_check_refuses_them_among_results(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path / "results" / "nvidia-h200" / "2026-11-21-abcdef0")
    assert cli.main(["check", str(tmp_path / "results")]) == FAILED
    assert "was imported from another tool" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["junit", "github"])
def test_no_verdict_is_exported(
    format: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", format, str(kept(tmp_path / "run").folder)]) == USAGE
    assert "only records of kind import" in capsys.readouterr().err


def test_neither_reference_nor_claims_take_them(tmp_path: Path) -> None:
    run = kept(tmp_path / "nvidia-h200" / "run")
    with pytest.raises(GpuliftError):
        build([run])
    assert runs_by_model([tmp_path], read_ledger()) == {}


def test_they_are_compared_with_each_other_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = kept(tmp_path / "base", (2.1, 2.2, 2.15, 2.12)).folder
    head = kept(tmp_path / "head", (1.1, 1.2, 1.15, 1.12)).folder
    assert cli.main(["compare", str(base), str(head)]) == FAILED
    assert "1 regressed" in capsys.readouterr().out
    ours = sample.write(tmp_path / "ours", runs_made.without_gpu())
    assert cli.main(["compare", str(ours), str(head)]) == NOT_COMPARABLE
    assert "the head records were imported" in capsys.readouterr().err


def test_a_record_of_ours_still_needs_its_build_and_seed() -> None:
    one = runs_made.full_gpu()[0]
    del one["order"]["seed"]
    with pytest.raises(GpuliftError, match="seed is missing"):
        read_record(one)
    one = runs_made.full_gpu()[0]
    del one["context"]["build"]
    with pytest.raises(GpuliftError, match="build is missing"):
        read_record(one)


def test_a_folder_that_holds_something_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path / "run")
    made = records_of([replay({})], [], COMMAND, STARTED)
    with pytest.raises(GpuliftError, match="not empty"):
        write(made, tmp_path / "run")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(GpuliftError, match="is the current folder"):
        require_new(Path())


def test_a_disk_that_fills_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(GpuliftError, match="No space left on device"):
        write(records_of([replay({})], [], COMMAND, STARTED), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
