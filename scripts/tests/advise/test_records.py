"""Records of processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.advise.evidence import BASELINE, Arm, Check, Failed, Memory, Window
from gpulift.advise.records import records_of
from gpulift.exchange.imported import write
from gpulift.records.read import read_results
from gpulift.verdicts import stats
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
