"""results/certificates/fleet.md: how it is simulated, and that it is of the committed records."""

from __future__ import annotations

import numpy as np
import pytest

from gpulift.analysis.model_records import committed_files
from tests.conftest import CHECKOUT
from tests.tools.test_showcase import needs_git
from tools import fleet_simulation, fleet_trials
from tools.fleet_simulation import Roof

RESULTS = CHECKOUT / "results"
MAKE_ANEW = "run python -m tools.fleet_trials in scripts/, commit what it writes"
CARDS = 4


def roof(deviation: float, half: float = 0.0) -> Roof:
    logs = np.linspace(-1, 1, 9)
    logs *= deviation / np.std(logs, ddof=1)
    return Roof("roof/device_memory/burst", logs, np.full(9, half), None)


@pytest.mark.parametrize("name", fleet_simulation.DRAWS)
def test_a_draw_is_as_wide_as_the_runs_and_has_their_intervals(name: str) -> None:
    drawn = fleet_simulation.DRAWS[name](roof(0.01, 0.002), 20_000, np.random.default_rng(1))
    assert np.std(drawn[0]) == pytest.approx(0.01, rel=0.25)
    assert set(drawn[1]) == {0.002}


def test_a_slow_card_is_found_where_sound_ones_agree() -> None:
    tight, wide = (fleet_simulation.found(roof(sd), 1, 50, (0.03,), 20) for sd in (0.001, 0.02))
    assert (tight, wide) == ([1.0], [0.0])


def test_a_card_whose_launches_vary_by_as_much_is_not_found() -> None:
    assert fleet_simulation.found(roof(0.001, 0.03), 1, 50, (0.03,), 20) == [0.0]


def test_false_names_are_counted_by_fleet() -> None:
    lone = roof(0.001)
    lone.logs[0] = -0.2  # of one run in nine: a ninth of the cards is that slow
    shares = fleet_simulation.false_names([lone], fleet_simulation.recorded, 4, 200)
    assert 0 < shares.failed <= shares.named < shares.fleets == 200


@needs_git
def test_the_committed_table_is_of_the_committed_records() -> None:
    files = committed_files(RESULTS, fleet_trials.MODEL)
    page = (RESULTS / fleet_trials.PAGE).read_text("utf-8")
    assert fleet_trials.digest(files) in page, MAKE_ANEW
    roofs = fleet_simulation.roofs_of(files, fleet_trials.MODEL)
    shares = fleet_simulation.false_names(
        roofs, fleet_simulation.recorded, CARDS, fleet_trials.FLEETS
    )
    assert fleet_trials.line_of_fleets("recorded", CARDS, shares) in page, MAKE_ANEW
    for one in roofs:
        share = fleet_simulation.found(one, len(roofs), CARDS, (0.03,), fleet_trials.FLEETS)[0]
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{one.id}`"))
        assert line.split(" | ")[4] == f"{100 * share:.0f} %", MAKE_ANEW


@needs_git
def test_the_page_has_all_of_a_small_simulation() -> None:
    files = committed_files(RESULTS, fleet_trials.MODEL)
    page = fleet_trials.page(files, fleets=2)
    committed = (RESULTS / fleet_trials.PAGE).read_text("utf-8")
    words = [
        [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("|")]
        for text in (page, committed)
    ]
    assert words[0] == words[1], MAKE_ANEW
