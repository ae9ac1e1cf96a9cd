"""Which rows a gate's filter selects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.gate.rows import choose_rows
from gpulift.ground.errors import GpuliftError

QUICK = CaseInfo("n:1", True, "burst")
INFOS = (
    TechniqueInfo("launch/graph", "", 1, False, ("stream", "graph"), (QUICK,)),
    TechniqueInfo("step/whole", "", 1, False, ("eager", "graph"), (CaseInfo("", True, "burst"),)),
)
GRAPH = ["launch/graph/n:1/graph", "launch/graph/n:1/stream"]
STEP = ["step/whole/eager", "step/whole/graph"]


@pytest.mark.parametrize(
    ("filter", "selected"),
    [
        (None, [*GRAPH, *STEP]),
        ("all", [*GRAPH, *STEP]),
        ("eager", ["step/whole/eager"]),
        ("whole/graph$", ["step/whole/graph"]),
        ("launch/graph$", GRAPH),
        ("^launch/graph/n:1$", GRAPH),
        ("^step/whole$", STEP),
        ("-^launch/graph$|eager", ["step/whole/graph"]),
    ],
)
def test_a_filter_selects_as_gpulift_bench_does(filter: str | None, selected: list[str]) -> None:
    assert [row.id for row in choose_rows(INFOS, INFOS, filter, all_cases=False)] == selected


def test_whole_steps_are_too_slow_for_many_launches_unless_all_cases_are_asked_for() -> None:
    infos = (INFOS[0], replace(INFOS[1], whole_steps=True))
    assert [row.id for row in choose_rows(infos, infos, None, all_cases=False)] == GRAPH
    assert [row.id for row in choose_rows(infos, infos, None, all_cases=True)] == [*GRAPH, *STEP]
    with pytest.raises(GpuliftError, match="among the quick cases; --all takes all"):
        choose_rows(infos, infos, "step/whole", all_cases=False)


def test_a_filter_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(GpuliftError, match=r"no case matches the filter '-launch\|step'"):
        choose_rows(INFOS, INFOS, "-launch|step", all_cases=False)


def test_a_case_of_what_cannot_run_is_refused_with_the_reason() -> None:
    infos = [replace(INFOS[0], unavailable="no cuDNN", remedy="install it", arms=(), cases=())]
    with pytest.raises(GpuliftError, match=f"{INFOS[0].id} cannot run here: no cuDNN; install it"):
        choose_rows(infos, infos, f"^{INFOS[0].id}/n:1/", all_cases=False)
