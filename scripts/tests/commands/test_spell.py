"""A run that fits a spell: whole cases, one after the other, while there is time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import pytest

from gpulift.analysis.costs import Cost, Costs
from gpulift.analysis.lacking import CLAIMS, LAUNCHES, CaseName, Fills
from gpulift.analysis.today import UNKNOWN
from gpulift.commands import run_further, spell
from gpulift.commands.spell import KEPT_S, WRITING_S, Step
from gpulift.engine import machine, measuring, runs
from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.ground.errors import BUSY, FAILED, INTERRUPTED, OK, GpuliftError
from tests import sample

LAUNCH_S = 10.0


def step(number: int, launch_s: float | None = LAUNCH_S, launches: int = 3) -> Step:
    cost = None if launch_s is None else Cost(launch_s)
    return Step("a/b", f"n:{number}", ("plain", "new"), launches, cost)


class Bench:
    """Measures the launches that a folder lacks of the rows it is told, each as long as `takes`
    says, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.takes: dict[str, float] = {}
        self.calls: list[tuple[str, int]] = []
        self.said: list[str] = []
        self.ends: Callable[[str, int], int | None] = lambda case, launch: None
        self.more: sample.Json = {}
        self.noise = 1e-5

    def __call__(self, _: Path, flags: Sequence[str], limit_s: float = inf) -> int:
        folder = Path(flags[flags.index("--records") + 1])
        rows = [one.split("\t") for one in (folder / runs.ROWS_FILE).read_text().splitlines()]
        wanted = int(flags[flags.index("--launches") + 1]) if "--launches" in flags else 3
        ((technique, case),) = {(one[0], one[1]) for one in rows}
        self.calls.append((case, wanted))
        ends_s = self.now_s + limit_s
        arms = [sample.arm("plain", 0.02, launch_noise=self.noise), sample.arm("new", 0.01)]
        files = folder.glob("*.jsonl")
        done = [json.loads(one) for file in files for one in file.read_text().splitlines()]
        there = [one["launch"] for one in done if one["case_id"] == case]
        for launch in range(len(there), wanted):
            code = self.ends(case, launch)
            if code is not None:
                return code
            self.now_s += self.takes.get(case, LAUNCH_S)
            if self.now_s > ends_s:
                self.now_s = ends_s
                return INTERRUPTED
            values = {"n": int(case[2:])}
            sample.write(folder, [sample.record(technique, values, arms, launch, **self.more)])
        return OK

    def measure(
        self, folder: Path, steps: Sequence[Step], within_s: float = inf, **options: int
    ) -> tuple[int, bool]:
        asked = measuring.Options(**options)  # type: ignore[arg-type]
        ends_s = self.now_s + within_s
        return spell.measure(folder, steps, asked, ends_s, self.said.append, lambda: self.now_s)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(machine, "find_bench", lambda: Path("bench"))
    monkeypatch.setattr(machine, "measure", made)
    return made


def test_each_case_has_all_its_launches_before_the_next_begins(
    tmp_path: Path, bench: Bench
) -> None:
    assert bench.measure(tmp_path, [step(1), step(2)]) == (OK, True)
    assert bench.calls == [("n:1", 3), ("n:2", 3)]
    assert bench.said == ["whole: 2 of 2 cases"]


def test_what_does_not_fit_is_not_begun_and_what_is_left_is_said(
    tmp_path: Path, bench: Bench
) -> None:
    steps = [step(1), step(2, 50.0), step(3)]
    assert bench.measure(tmp_path, steps, KEPT_S + 65) == (OK, False)
    assert bench.calls == [("n:1", 3), ("n:3", 3)]
    assert bench.said == [
        "whole: 2 of 3 cases",
        "left: 1 case, 150 s: a/b/n:2 150 s; the same command goes on",
    ]


def test_the_next_call_goes_on(tmp_path: Path, bench: Bench) -> None:
    steps = [step(1), step(2)]
    assert bench.measure(tmp_path, steps, KEPT_S + 35) == (OK, False)
    assert bench.measure(tmp_path, steps, KEPT_S + 35) == (OK, True)
    assert bench.calls == [("n:1", 3), ("n:2", 3)]


def test_a_case_that_takes_longer_is_finished_in_the_time_that_was_kept(
    tmp_path: Path, bench: Bench
) -> None:
    bench.takes = {"n:1": 20.0}
    assert bench.measure(tmp_path, [step(1)], KEPT_S + 31) == (OK, True)


def test_when_the_time_is_over_whole_launches_are_kept_and_gone_on_with(
    tmp_path: Path, bench: Bench
) -> None:
    bench.takes = {"n:1": 35.0}
    began_s = bench.now_s
    assert bench.measure(tmp_path, [step(1), step(2)], KEPT_S + 31) == (OK, False)
    assert bench.now_s == began_s + KEPT_S + 31 - WRITING_S
    assert bench.said == [
        "a/b/n:1 takes longer than planned: interrupted, its whole launches are kept",
        "whole: 0 of 2 cases",
        "left: 2 cases, 40 s: a/b/n:1 10 s, a/b/n:2 30 s; the same command goes on",
    ]
    assert bench.measure(tmp_path, [step(1), step(2)]) == (OK, True)


@pytest.mark.parametrize("code", [INTERRUPTED, -15, BUSY])
def test_who_ends_it_hears_what_is_whole(tmp_path: Path, bench: Bench, code: int) -> None:
    bench.ends = lambda case, launch: code if case == "n:2" else None
    assert bench.measure(tmp_path, [step(1), step(2), step(3)]) == (code, False)
    assert bench.said[0] == "whole: 1 of 3 cases"
    assert bench.said[1].startswith("left: 2 cases, 60 s")


def test_an_interrupt_between_two_cases_is_one(tmp_path: Path, bench: Bench) -> None:
    def interrupt(case: str, _: int) -> int | None:
        if case == "n:2":
            raise KeyboardInterrupt
        return None

    bench.ends = interrupt
    assert bench.measure(tmp_path, [step(1), step(2)]) == (INTERRUPTED, False)
    assert bench.said[0] == "whole: 1 of 2 cases"


def test_on_a_full_disk_no_further_case_is_begun(tmp_path: Path, bench: Bench) -> None:
    bench.ends = lambda case, launch: FAILED if case == "n:2" and launch == 1 else None
    assert bench.measure(tmp_path, [step(1), step(2), step(3)]) == (FAILED, False)
    assert bench.calls == [("n:1", 3), ("n:2", 3), ("n:2", 3)]
    assert bench.said[:2] == ["a/b/n:2: nothing was recorded", "whole: 1 of 3 cases"]


def test_a_case_that_fails_is_not_begun_again_and_the_others_are_measured(
    tmp_path: Path, bench: Bench
) -> None:
    failed = sample.unmeasured("a/b", {"n": 1}, "failed", "another result")

    def fail(case: str, _: int) -> int | None:
        if case == "n:1":
            sample.write(tmp_path, [failed])
            return FAILED
        return None

    bench.ends = fail
    assert bench.measure(tmp_path, [step(1), step(2)]) == (OK, True)
    assert bench.measure(tmp_path, [step(1), step(2)]) == (OK, True)
    assert bench.calls == [("n:1", 3), ("n:2", 3)]


def test_wide_whole_steps_have_two_launches_more_while_there_is_time(
    tmp_path: Path, bench: Bench
) -> None:
    bench.more, bench.noise = {"whole_steps": True}, 0.05
    assert bench.measure(tmp_path, [step(1)], KEPT_S + 35) == (OK, False)
    assert bench.said[-1] == "left: 1 case, 20 s: a/b/n:1 20 s; the same command goes on"
    assert bench.measure(tmp_path, [step(1)], KEPT_S + 35) == (OK, True)
    assert bench.calls == [("n:1", 3), ("n:1", run_further.LAUNCHES)]


def test_launches_that_were_asked_for_are_all(tmp_path: Path, bench: Bench) -> None:
    bench.more, bench.noise = {"whole_steps": True}, 0.05
    two = Step("a/b", "n:1", ("plain", "new"), 2, further=False)
    assert bench.measure(tmp_path, [two], launches=2) == (OK, True)
    assert bench.calls == [("n:1", 2)]


def test_too_short_a_spell_is_refused(tmp_path: Path, bench: Bench) -> None:
    with pytest.raises(GpuliftError, match="too short for any case; 91s has time for the shortest"):
        bench.measure(tmp_path, [step(1, 20.0), step(2)], KEPT_S + 25)
    assert not bench.calls


def test_what_no_record_tells_is_begun_while_there_is_time(tmp_path: Path, bench: Bench) -> None:
    assert bench.measure(tmp_path, [step(1, None), step(2, None)], KEPT_S + 25) == (OK, False)
    assert bench.calls == [("n:1", 3)]
    assert bench.said[-1] == (
        "left: 1 case, 0 s and 1 case of which no record tells: a/b/n:2 ? s; the same command"
        " goes on"
    )


def test_what_brings_launches_alone_comes_last_the_shortest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = Costs([], UNKNOWN)
    taken = {"n:1": Cost(90.0), "n:2": Cost(9.0), "n:3": Cost(50.0), "n:5": Cost(70.0)}
    monkeypatch.setattr(costs, "launch", lambda _, case, *__: taken.get(case))
    info = TechniqueInfo("a/b", "", 1, False, ("new",), tuple(CaseInfo(f"n:{n}") for n in range(6)))
    launches: Fills = {LAUNCHES: ["0 of 3"]}
    worth: dict[CaseName, Fills] = {
        ("a/b", "n:1"): {CLAIMS: ["one"], **launches},
        ("a/b", "n:2"): {CLAIMS: ["two"]},
        **{("a/b", f"n:{n}"): launches for n in (4, 5, 3)},
    }
    found = spell.steps_of([info], measuring.Options(), costs, "h200", worth)
    assert [one.case for one in found] == ["n:1", "n:2", "n:3", "n:5", "n:4"]


def test_a_plan_has_seconds_and_sums_and_what_there_is_no_time_for(tmp_path: Path) -> None:
    arms = [sample.arm("plain", 0.02), sample.arm("new", 0.01)]
    sample.write(tmp_path, sample.launches(2, "a/b", {"n": 1}, arms))
    dear = Step("a/b", "n:2", ("new",), 3, Cost(50.0, "other cases"), "claims: one")
    lines = list(spell.plan([step(1), dear, step(3), step(4, None)], KEPT_S + 45, tmp_path))
    assert [line.split(maxsplit=2) for line in lines[:5]] == [
        ["seconds", "sum", "case"],
        ["10", "10", "a/b/n:1"],
        ["150", "-", "a/b/n:2  (by other cases; claims: one)"],
        ["30", "40", "a/b/n:3"],
        ["?", "40", "a/b/n:4  (no record tells)"],
    ]
    assert lines[5:] == [
        "4 cases, 190 s and 1 case of which no record tells",
        "3 of them within 105 s, of which 60 are kept for writing",
    ]
