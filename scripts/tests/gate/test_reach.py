"""A gate of a command that no launches of its budget could decide ends early."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpulift.gate.evidence import BASE, CASES, COMMANDS, HEAD, NULL, PLANTED, Row, Setup
from gpulift.gate.evidence import batch_folder as folder_of
from gpulift.gate.judge import GateResult, judge
from gpulift.gate.measure import Batch, Budget, Plan, measure
from gpulift.gate.metrics import Reading
from gpulift.gate.pairs import Pair, PairedLaunch, Run, write_launch
from gpulift.ground.errors import FAILED, INCONCLUSIVE, OK

ROW = Row("x", "", "wall")
Factor = Callable[
    [int], float
]  # head over base of a launch, by its number; from 1000 on in the second stage


@dataclass
class Given:
    """A taker whose launches take a second each and say what they are given, by series."""

    factors: dict[str, Factor]
    now_s: float = 0.0
    taken: dict[str, int] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now_s

    def cost(self, rows: int, launches: int) -> int:
        return launches if rows else 0

    def take(self, batch: Batch, budget: Budget) -> list[Path]:
        folders = [folder_of(batch.folder, range(one, one + 1)) for one in batch.launches]
        for number, folder in zip(batch.launches, folders, strict=True):
            said = self.factors[batch.series](number + 1000 * (batch.stage - 1))
            runs = (
                Run({ROW.arm: Reading(value, "s")}, 0.5)
                for value in (1.0, said * (1 + batch.planted))
            )
            write_launch(folder, PairedLaunch((Pair((BASE, HEAD), *runs),), batch.planted or None))
        self.now_s += len(folders)
        self.taken[batch.series] = self.taken.get(batch.series, 0) + len(folders)
        return folders


def gated(folder: Path, budget_s: float, **factors: Factor) -> tuple[GateResult, Given, list[str]]:
    taker, said = Given(factors), list[str]()
    setup = Setup(
        "2", COMMANDS, "a", "b", "here", "", 1, (ROW,), least=0.01, equivalent=0.02
    )  # fmt: skip
    budget = Budget(budget_s, 1.0, taker.clock)
    plan = Plan(setup, folder, taker, budget, said.append)
    return judge(measure(plan)), taker, said


def around(mean: float, scatter: float) -> Factor:
    return lambda number: math.exp(math.log1p(mean) + scatter * (1 if number % 2 else -1))


def calm(_: int) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("mean", "scatter", "budget_s", "taken"),
    [
        (0.0, 0.3, 130, 32),  # of 64
        (0.0, 0.3, 85, 16),  # of 32: a change that is as large as may be would be missed
        (0.0, 0.05, 320, 128),  # 256 would see 2 %
        (0.0, 0.005, 130, 4),  # which sees 2 % already
    ],
)
def test_a_screen_ends_where_no_look_to_come_would_tell(
    tmp_path: Path, mean: float, scatter: float, budget_s: float, taken: int
) -> None:
    made = gated(tmp_path, budget_s, cases=around(mean, scatter), null=calm, planted=calm)
    result, taker, said = made
    early = [line for line in said if line.startswith("stopped early")]
    told = scatter < 0.1
    assert taker.taken[CASES] >= taken if told else taker.taken[CASES] == taken
    assert result.exit_code == (OK if told else INCONCLUSIVE)
    if not told:  # and where nothing was told, no control is measured
        assert early == [
            f"stopped early: {taken} launches of cases vary so much that {2 * taken}, the most that"
            " the budget holds, would tell no more"
        ]
        assert list(taker.taken) == [CASES]
        assert [one.name for one in result.controls] == ["rows"]
    else:
        assert early == []
        assert set(taker.taken) == {CASES, NULL, PLANTED}


def test_a_change_that_may_yet_be_found_is_looked_for(tmp_path: Path) -> None:
    result, _, said = gated(tmp_path, 200, cases=around(0.15, 0.2), null=calm, planted=calm)
    assert not any(line.startswith("stopped early") for line in said)
    assert result.exit_code == FAILED


def test_a_control_that_cannot_be_decided_ends_early_too(tmp_path: Path) -> None:
    def null(number: int) -> float:
        return 1.1 if number < 8 else around(0.0, 0.1)(number)

    slower = {CASES: around(0.5, 0.01), NULL: null, PLANTED: calm}
    result, taker, said = gated(tmp_path, 110, **slower)
    assert said[-2].startswith("stopped early: ")
    assert " of null vary so much" in said[-2]
    assert PLANTED not in taker.taken
    assert [(one.name, one.state) for one in result.controls][-1] == ("null", "not finished")
    assert result.exit_code == INCONCLUSIVE
