"""The gate's order of measuring, its filters and its budget."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.engine import machine
from gpulift.gate.evidence import ALTERNATING, BASE, HEAD, TWO_IN_ONE, Row, Setup, read_evidence
from gpulift.gate.judge import judge
from gpulift.gate.measure import (
    Budget,
    Plan,
    measure,
    needed_row_launches,
)
from gpulift.gate.programs import Program, Programs, Settings, stage_block
from gpulift.gate.rows import selecting, selecting_by_filter
from gpulift.ground.errors import GpuliftError
from tests.fake_gate import FakeBench, make_build, read_all, rows_in, technique

pytestmark = pytest.mark.world

ROWS = (Row("a/slow", "n:1", "plain"), Row("b/even", "n:1", "plain"))


class Hand:
    """A clock that tests move: by ten seconds each time, or by the next of these durations."""

    def __init__(self, durations_s: list[float] | None = None) -> None:
        self.now_s = 0.0
        self._durations_s = durations_s

    def __call__(self) -> float:
        return self.now_s

    def forward(self) -> None:
        self.now_s += 10.0 if self._durations_s is None else self._durations_s.pop(0)


def planned() -> Setup:
    return Setup(
        method="1",
        mode="duet",
        base="x",
        head="x",
        machine="x",
        certificate="x",
        seed=7,
        rows=ROWS,
    )


def prepare(
    folder: Path, bench: FakeBench, limit_s: float | None, durations_s: list[float] | None = None
) -> tuple[Plan, list[str]]:
    """A gate over two rows, one of them slower, in which every call takes ten seconds, or these."""
    clock = Hand(durations_s)
    bench.on_call = clock.forward
    base = make_build(folder / "base", (technique("a/slow"), technique("b/even")))
    head = make_build(
        folder / "head", (technique("a/slow", log_time={"plain": 0.005}), technique("b/even"))
    )
    said: list[str] = []
    gate = Plan(
        setup=planned(),
        folder=folder / "evidence",
        taker=Programs(
            Program(base / "gpulift-bench", base / "modules"),
            Program(head / "gpulift-bench", head / "modules"),
            Settings(0.3, gpu=1),
        ),
        on_gpu=frozenset({"a/slow", "b/even"}),
        launch_bound=frozenset(),
        budget=Budget(limit_s, 0.6, clock),
        say=said.append,
    )
    return gate, said


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    made = FakeBench()
    made.install(monkeypatch)
    return made


def test_without_a_budget_everything_is_decided(bench: FakeBench, tmp_path: Path) -> None:
    gate, _ = prepare(tmp_path, bench, None)
    result = judge(measure(gate))
    assert [one.verdict.verdict for one in result.rows] == ["regressed", "equivalent"]
    assert result.exit_code == 1


def test_every_stage_has_a_seed_and_a_folder_of_its_own(bench: FakeBench, tmp_path: Path) -> None:
    gate, _ = prepare(tmp_path, bench, None)
    measure(gate)
    seeds = {
        call[call.index("--records") + 1]: call[call.index("--seed") + 1] for call in bench.calls
    }
    # Two runs of the screen and one of its confirmation, two of the planted one, one of the null.
    assert len(seeds) == len(bench.calls) == 6
    assert len(set(seeds.values())) == len(seeds)
    assert all(call[call.index("--gpu") + 1] == "1" for call in bench.calls)


def test_a_look_of_several_runs_holds_each_order_of_the_sides_as_often(
    bench: FakeBench, tmp_path: Path
) -> None:
    # gpulift-bench counts from the seed on which side prepares first, and changes it every other.
    gate, _ = prepare(tmp_path, bench, None)
    measure(gate)
    turns: dict[Path, list[int]] = {}
    for call in bench.calls:
        stage = Path(call[call.index("--records") + 1]).parent
        seed, launches = (int(call[call.index(name) + 1]) for name in ("--seed", "--launches"))
        turns.setdefault(stage, []).extend(range(seed, seed + launches))
    assert len(turns) < len(bench.calls)
    for of_stage in turns.values():
        assert Counter(turn % 4 for turn in of_stage) == dict.fromkeys(range(4), len(of_stage) // 4)


def test_what_was_measured_is_what_its_folder_says(bench: FakeBench, tmp_path: Path) -> None:
    # Launches are read as they come, a replay reads them all at once.
    gate, _ = prepare(tmp_path, bench, None)
    bench.noise = 0.005
    evidence = measure(gate)
    assert judge(evidence) == judge(replace(read_evidence(gate.folder), ended=True))
    assert len(bench.calls) == len(list(gate.folder.glob("*/stage*/launch-*"))) > 6


def screens_of(bench: FakeBench) -> list[str]:
    folders = [call[call.index("--records") + 1] for call in bench.calls]
    return [folder.rpartition("cases/stage1/")[2] for folder in folders if "cases/stage1" in folder]


def test_a_screen_goes_on_where_launches_vary(bench: FakeBench, tmp_path: Path) -> None:
    gate, said = prepare(tmp_path, bench, None)
    bench.noise = 0.02
    result = judge(measure(gate))
    assert screens_of(bench) == ["launch-0000", "launch-0002", "launch-0004", "launch-0008"]
    assert {len(one.first) for one in result.rows} == {16}
    assert "screen: 2 of cases vary, 8 launches in all" in said


def test_a_budget_ends_a_screen_and_leaves_time_for_the_controls(
    bench: FakeBench, tmp_path: Path
) -> None:
    # Ten seconds a call: 2.5 s for a launch of a row, and the controls alone take 48 of them.
    gate, said = prepare(tmp_path, bench, 155.0)
    bench.noise = 0.02
    result = judge(measure(gate))
    assert screens_of(bench) == ["launch-0000", "launch-0002"]
    assert {len(one.first) for one in result.rows} == {4}
    (ended,) = (line for line in said if line.startswith("the budget ends here"))
    # Four more launches of two rows at 2.5 s, and of the 48 of the controls.
    assert ended == (
        "the budget ends here: 2 of cases vary too much for 4 launches; 8 of each would take"
        " 20 s more, with 120 s to keep for the controls and 135 s left"
    )
    assert not any(control.broken for control in result.controls)


def test_every_later_run_recalls_what_the_first_one_searched(
    bench: FakeBench, tmp_path: Path
) -> None:
    gate, _ = prepare(tmp_path, bench, None)
    measure(gate)
    first, *later = bench.calls
    assert "--recall" not in first
    searched = first[first.index("--records") + 1]
    assert {call[call.index("--recall") + 1] for call in later} == {searched}


def test_either_build_starts_in_half_of_the_launches(bench: FakeBench, tmp_path: Path) -> None:
    # gpulift-bench swaps the start from launch to launch, and begins anew in every run.
    gate, _ = prepare(tmp_path, bench, None)
    bench.noise = 0.002
    measure(gate)
    assert all(int(call[call.index("--launches") + 1]) % 2 == 0 for call in bench.calls)


def test_the_null_control_meets_the_base_with_itself(bench: FakeBench, tmp_path: Path) -> None:
    gate, _ = prepare(tmp_path, bench, None)
    measure(gate)
    modules = tmp_path / "base" / "modules"
    (null,) = calls_of(bench, "null")
    assert {f"--head={modules}", f"--base={modules}"} < set(null)


def calls_of(bench: FakeBench, series: str) -> list[list[str]]:
    """The calls for a series, of which only those of the planted control plant anything."""
    calls = [call for call in bench.calls if f"/{series}/" in call[call.index("--records") + 1]]
    assert all(("--plant" in call) == (series == "planted") for call in calls)
    return calls


def rows_of(call: list[str]) -> list[tuple[str, str, str]]:
    """What a call was told to measure, which lies with its records."""
    file = Path(call[call.index("--rows") + 1])
    assert str(file.parent) == call[call.index("--records") + 1]
    return sorted(rows_in(file))


def test_the_planted_control_meets_a_slower_head_in_the_same_rows(
    bench: FakeBench, tmp_path: Path
) -> None:
    gate, said = prepare(tmp_path, bench, None)
    evidence = measure(gate)
    modules = tmp_path / "head" / "modules"
    screened, confirmed = calls_of(bench, "planted")
    for call in (screened, confirmed):
        assert {f"--head={modules}", f"--base={modules}"} < set(call)
        assert call[call.index("--plant") + 1] == "0.01"
    null = calls_of(bench, "null")[0]
    assert (
        rows_of(null)
        == rows_of(screened)
        == [(row.technique, row.case_id, row.arm) for row in ROWS]
    )
    assert set(evidence.planted.first) == set(evidence.null.first) == set(ROWS)
    assert evidence.setup.planted_size == 0.01
    assert "control planted, 1 % slower on purpose: " in "".join(said)
    assert calls_of(bench, "cases")


def test_with_alternating_processes_only_the_turns_of_the_head_are_slower(
    bench: FakeBench, tmp_path: Path
) -> None:
    gate, _ = prepare(tmp_path, bench, None)
    result = judge(measure(replace(gate, setup=replace(gate.setup, mode=ALTERNATING))))
    assert [control.passed for control in result.controls] == [True, True, True]
    calls = [c for c in bench.calls if "/planted/" in c[c.index("--records") + 1]]
    assert len(calls) == 4 * (4 + 8)
    for call in calls:
        assert call[0] == str(tmp_path / "head" / "gpulift-bench")
        assert call[call.index("--modules") + 1] == str(tmp_path / "head" / "modules")
        assert ("--plant" in call) == call[call.index("--records") + 1].endswith("-head")


def test_what_a_budget_leaves_open_is_inconclusive(bench: FakeBench, tmp_path: Path) -> None:
    # The screen at a second per launch and row: 56 such launches fit. The last of the controls
    # then takes 30 s, so that 4 s are left for the eight launches of a confirmation.
    durations_s = [4.0, 4.0, 8.0, 8.0, 30.0]
    gate, said = prepare(tmp_path, bench, 58.0, durations_s)
    result = judge(measure(gate))
    assert durations_s == []
    assert [one.verdict.verdict for one in result.rows] == ["inconclusive", "equivalent"]
    assert "too few launches were left to confirm it" in result.rows[0].verdict.reason
    assert said[-1].startswith("the budget ends here: confirming 1 of cases would take")
    assert result.exit_code == 5


def test_a_budget_that_the_first_launch_shows_to_be_too_small(
    bench: FakeBench, tmp_path: Path
) -> None:
    gate, _ = prepare(tmp_path, bench, 60.0)
    with pytest.raises(GpuliftError, match=r"need about 140 s by the times seen so far"):
        measure(gate)
    assert len(bench.calls) == 1


def test_the_time_needed_counts_screen_and_controls(bench: FakeBench, tmp_path: Path) -> None:
    gate, _ = prepare(tmp_path, bench, None)
    assert needed_row_launches(gate.setup, gate.taker) == 2 * 4 + (2 + 2) * (4 + 8)


def test_rows_are_a_line_each_and_one_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    rows = [Row("a/b", "n:1", "x"), Row("a/c", "", "y")]
    flag, file = selecting(rows, tmp_path / "new" / "folder")
    assert (flag, Path(file).read_text()) == ("--rows", "a/b\tn:1\tx\na/c\t\ty\n")
    (tmp_path / "file").touch()
    with pytest.raises(GpuliftError, match=r"file"):
        selecting(rows, tmp_path / "file")


def test_a_build_of_before_rows_gets_a_filter_for_its_own_processes(
    bench: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, _ = prepare(tmp_path, bench, None)
    assert isinstance(gate.taker, Programs)
    base = replace(gate.taker.base, takes_rows=False)
    gate = replace(gate, taker=replace(gate.taker, base=base))
    calls: list[tuple[str, list[str]]] = []

    def measured(bench: Path, flags: Sequence[str], limit_s: float) -> int:
        calls.append((bench.parent.name, [flag.partition("=")[0] for flag in flags]))
        return 0

    monkeypatch.setattr(machine, "measure", measured)
    measure(replace(gate, setup=replace(gate.setup, mode=ALTERNATING)))
    assert {side for side, _ in calls} == {"base", "head"}
    for side, flags in calls:
        assert ("--benchmark_filter" in flags, "--rows" in flags) == (
            side == "base",
            side == "head",
        )


def test_the_filter_of_such_a_build_selects_exactly_its_rows() -> None:
    rows = [
        Row("a/b", "n:1", "x"),
        Row("a/b", "n:1", "y"),
        Row("a/b", "n:1.5", "x+"),
        Row("a/c", "", "x"),
    ]
    (flag,) = selecting_by_filter(rows)
    pattern = re.compile(flag.removeprefix("--benchmark_filter="))
    for row in rows:
        assert pattern.search(f"{row.id}/iterations:1/manual_time")
    for name in (
        "a/b/n:1/xx",
        "a/b/n:1/z",
        "a/b/n:1x5/x+",
        "za/b/n:1/x",
        "a/c/n:1/x",
        "a/b/n:1.5/x",
    ):
        assert not pattern.search(f"{name}/iterations:1/manual_time")
    assert "(?" not in pattern.pattern  # gpulift-bench reads POSIX extended expressions


def test_blocks_swap_their_start_and_so_do_the_stages() -> None:
    def sides(block: int, stage: int) -> list[str]:
        return [side for side, _ in stage_block(Path("x"), block, stage)]

    assert sides(0, 1) == [BASE, HEAD, HEAD, BASE]
    assert sides(1, 1) == [HEAD, BASE, BASE, HEAD]
    assert sides(0, 2) == [HEAD, BASE, BASE, HEAD]
    names = [folder.name for _, folder in stage_block(Path("x"), 0, 1)]
    assert names == ["0-base", "1-head", "2-head", "3-base"]


def test_a_null_control_that_the_budget_leaves_open_is_not_finished(
    bench: FakeBench, tmp_path: Path
) -> None:
    # Base against itself looks slower, and its screen takes longer than that of the cases told: no
    # time is left for its confirmation and the planted control after it.
    durations_s = [4.0, 4.0, 20.0]
    gate, said = prepare(tmp_path, bench, 58.0, durations_s)
    bench.bias = 0.005
    evidence = measure(gate)
    assert durations_s == []
    assert evidence.setup.out_of_time == ("null",)
    result = judge(evidence)
    assert result.exit_code == 5
    assert [(one.name, one.passed, one.unfinished) for one in result.controls] == [
        ("rows", True, False),
        ("null", False, True),
    ]
    assert "not decided: inconclusive" in result.controls[1].said
    assert result.rows[0].verdict.reason == "not confirmed: a control is not finished"
    assert any("with the planted control still to come" in one for one in said)
    assert said[-1].startswith("control null is not finished, so nothing is confirmed: ")
    assert replace(read_evidence(gate.folder), ended=True) == evidence


def test_a_crash_that_the_budget_leaves_unexplained_says_so(
    bench: FakeBench, tmp_path: Path
) -> None:
    durations_s = [4.0, 2.0, 4.0, 4.0, 49.0]
    gate, said = prepare(tmp_path, bench, 64.0, durations_s)
    crash = technique("b/even", outcome="error", reason="SIGSEGV")
    make_build(tmp_path / "head", (technique("a/slow"), crash))
    result = judge(measure(gate))
    assert durations_s == []
    assert said[-1] == "the budget ends here: whether base or head broke 1 is not tried"
    verdict = result.rows[1].verdict
    assert verdict.verdict == "error"
    assert verdict.reason == "head or base, the base was not tried alone: SIGSEGV"
    assert result.exit_code == 1


def test_a_budget_counts_what_was_over_before_it() -> None:
    clock = Hand()
    budget = Budget(100.0, 1.0, clock, used_s=30.0)
    clock.forward()
    assert budget.left_s() == 60.0


def prepare_slow(folder: Path, bench: FakeBench, limit_s: float) -> tuple[Plan, list[str]]:
    """A gate with a budget by the clock of the fake, in which a launch of a row is planned to take
    0.6 s, and takes 20 s."""
    gate, said = prepare(folder, bench, None)
    bench.row_launch_s = 20.0
    bench.on_call = lambda: None
    return replace(gate, budget=Budget(limit_s, 0.6, lambda: bench.now_s)), said


@pytest.mark.parametrize("mode", [TWO_IN_ONE, ALTERNATING])
def test_a_first_run_slower_than_planned_ends_with_the_budget(
    bench: FakeBench, tmp_path: Path, mode: str
) -> None:
    gate, said = prepare_slow(tmp_path, bench, 50.0)
    evidence = measure(replace(gate, setup=replace(gate.setup, mode=mode)))
    assert bench.now_s == 50.0
    assert len(read_all(gate.folder)) == 2
    assert said[-1] == (
        f"the budget of 50 s broke the gate off: what was measured is kept in {gate.folder};"
        " give more, or select fewer cases"
    )
    result = judge(evidence)
    assert "broken off by its budget (give more, or select fewer cases): the last launches" in (
        result.controls[0].said
    )
    assert {one.verdict.verdict for one in result.rows} == {"inconclusive"}
    assert result.exit_code == 5
    assert read_evidence(gate.folder) == evidence


def test_a_control_slower_than_the_screen_ends_with_the_budget(
    bench: FakeBench, tmp_path: Path
) -> None:
    # Eight launches of the screen at 1 s, and two of the null control at 20 s.
    gate, _ = prepare_slow(tmp_path, bench, 58.0)

    def slow_down() -> None:
        bench.row_launch_s = 1.0 if len(bench.calls) <= 2 else 20.0

    bench.on_call = slow_down
    evidence = measure(gate)
    assert bench.now_s == 58.0
    assert len(read_all(gate.folder / "null")) == 2
    result = judge(evidence)
    assert "are of control null" in result.controls[0].said
    assert not any(control.broken for control in result.controls)
    assert [one.verdict.verdict for one in result.rows] == ["inconclusive", "equivalent"]
    assert result.rows[0].verdict.reason == "not confirmed: the gate was broken off"
    assert result.exit_code == 5


def test_nothing_starts_after_the_budget(bench: FakeBench, tmp_path: Path) -> None:
    # The second run ends late, as one that is just about to end when its time is over.
    gate, _ = prepare_slow(tmp_path, bench, 58.0)
    bench.row_launch_s = 1.0

    def end_late() -> None:
        bench.now_s += 60.0 if len(bench.calls) == 2 else 0.0

    bench.on_call = end_late
    evidence = measure(gate)
    assert len(bench.calls) == 2
    assert evidence.setup.out_of_time == ("null",)
    assert judge(evidence).exit_code == 5


def test_gpulift_bench_is_interrupted_at_its_limit(tmp_path: Path) -> None:
    slow = tmp_path / "gpulift-bench"
    slow.write_text(
        f"#!{sys.executable}\nimport signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda number, frame: sys.exit(130))\ntime.sleep(60)\n"
    )
    slow.chmod(0o755)
    started_s = time.monotonic()
    assert machine.measure(slow, [], 2.0) == 130
    assert time.monotonic() - started_s < 30.0
