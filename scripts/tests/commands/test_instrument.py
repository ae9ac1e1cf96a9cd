"""The instrument's own truth: what is known beforehand is found, and what is not true is seen."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from gpulift.commands import instrument
from gpulift.commands.instrument import HOLDS, OPEN, WRONG, Check, Measured
from gpulift.engine import machine
from gpulift.ground.errors import INCONCLUSIVE, INSTRUMENT_BROKEN, OK, GpuliftError
from gpulift.records.parse import read_context
from tests import sample
from tests.fake_duets import ROWS, FakeDuets

ROW = (ROWS[0].technique, ROWS[0].case_id, ROWS[0].arm)


@pytest.fixture(name="fake")
def duets_of_a_fake(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDuets:
    """fake: stands in for gpulift-bench."""
    made = FakeDuets()
    made.install(monkeypatch)
    monkeypatch.setattr(instrument, "MODULES", {ROW: "modules"})
    return made


def said(*ignored: str) -> None:
    """Progress, which nobody reads."""


@pytest.mark.parametrize(
    ("known", "bias", "noise", "state"),
    [
        (1.0, 0.0, 0.0005, HOLDS),
        (1.01, 0.0, 0.0005, HOLDS),
        (2.0, 0.002, 0.0005, HOLDS),
        (1.0, 0.006, 0.0005, WRONG),
        (1.0, -0.006, 0.0005, WRONG),
        (1.01, -0.01, 0.0005, WRONG),
        (1.0, 0.0, 0.05, OPEN),
        (1.01, -0.01, 0.05, OPEN),
    ],
)
def test_launches_are_held_against_what_is_known(
    known: float, bias: float, noise: float, state: str
) -> None:
    salt = random.Random(1)
    launches = [Measured(known * math.exp(bias + salt.gauss(0, noise)), known) for _ in range(8)]
    assert instrument.judge("what", "", launches).state == state


def test_one_launch_says_nothing() -> None:
    assert instrument.judge("what", "", [Measured(1.0, 1.0)]).state == OPEN


def test_what_is_seen_is_said_beside_what_is_known() -> None:
    check = instrument.judge("what", "ms", [Measured(0.00501, 0.005), Measured(0.00501, 0.005)])
    assert check.evidence == "5.01 ms [5.01 ms, 5.01 ms] in 2 launches, known 5 ms"


@pytest.mark.parametrize("size", instrument.SIZES)
def test_a_duet_finds_what_was_planted_and_no_more(
    size: float, fake: FakeDuets, tmp_path: Path
) -> None:
    fake.note = f"{size}"
    check = instrument.duet(ROW, size, tmp_path / "duet", said)
    assert check.state == HOLDS, check.evidence
    assert [call["launches"] for call in fake.calls] == ["8"]


def test_an_instrument_that_is_blind_to_what_was_planted_is_wrong(
    fake: FakeDuets, tmp_path: Path
) -> None:
    fake.blind = frozenset({ROWS[0].id})
    assert instrument.duet(ROW, 0.01, tmp_path / "duet", said).state == WRONG


def test_noise_takes_more_launches_with_seeds_of_their_own_and_is_no_pass(
    fake: FakeDuets, tmp_path: Path
) -> None:
    fake.noise = 0.2
    check = instrument.duet(ROW, 0.0, tmp_path / "duet", said)
    assert check.state == OPEN
    assert "is the machine busy?" in check.evidence
    assert [(call["launches"], call["seed"]) for call in fake.calls] == [
        ("8", "1"),
        ("16", "9"),
    ]


def test_a_launch_that_cannot_tell_what_was_planted_is_no_launch(
    fake: FakeDuets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sample.record

    def without_note(*given: object, **more: object) -> sample.Json:
        return {**made(*given, **more), "notes": {}}  # type: ignore[arg-type]

    monkeypatch.setattr(sample, "record", without_note)
    check = instrument.duet(ROW, 0.01, tmp_path / "duet", said)
    assert (check.state, check.evidence) == (OPEN, "0 launches say nothing of how they vary")


def test_what_cannot_be_measured_is_an_error_that_says_why(fake: FakeDuets, tmp_path: Path) -> None:
    fake.broken[ROWS[0].id] = ("error", "the worker crashed")
    with pytest.raises(GpuliftError, match="could not be measured: the worker crashed"):
        instrument.duet(ROW, 0.0, tmp_path / "duet", said)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([HOLDS, HOLDS], OK),
        ([HOLDS, OPEN], INCONCLUSIVE),
        ([OPEN, WRONG, HOLDS], INSTRUMENT_BROKEN),
    ],
)
def test_the_exit_code_is_that_of_the_worst(states: list[str], code: int) -> None:
    assert instrument.exit_code([Check("what", state, "") for state in states]) == code


def test_the_gpu_is_measured_where_there_is_one_that_was_built_for() -> None:
    with_gpu = read_context(sample.GPU_CONTEXT, "made")
    without = read_context(sample.CPU_CONTEXT, "made")
    built = [machine.TechniqueInfo(instrument.ON_GPU[0], "", 1, True, ("read",), ())]
    assert instrument.row_of(with_gpu, built) == instrument.ON_GPU
    assert instrument.row_of(without, built) == instrument.ON_HOST
    assert instrument.row_of(with_gpu, []) == instrument.ON_HOST
