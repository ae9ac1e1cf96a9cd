"""Measuring trials: what is asked of gpulift-bench, what becomes of the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.certify.issue import AA, PLANTED, SIZES, issue, line_of, schedule_hash
from gpulift.certify.trials import (
    TRIALS_FILE,
    OutOfTimeError,
    Session,
    begin_trial,
    clearing_launches,
    finished_trials,
    kept,
    measure_trials,
    next_kind,
    plant,
    run_trial,
    trial_seed,
)
from gpulift.engine import machine
from gpulift.engine.runs import Wanted
from gpulift.gate.evidence import Row
from gpulift.ground.errors import GpuliftError
from tests.fake_duets import ROWS, FakeDuets
from tests.fake_gate import rows_in
from tests.trials_made import planted, unchanged

pytestmark = pytest.mark.world


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeDuets:
    fake = FakeDuets()
    fake.install(monkeypatch)
    return fake


def make_session(folder: Path, bench: FakeDuets, limit_s: float = 100.0) -> Session:
    want = Wanted("nvidia-h200", "abc1234", False, {})
    budget = bench.budget(limit_s, 1.0)
    said: list[str] = []
    return Session(folder, Path("b/gpulift-bench"), want, ROWS, 0.2, 1, None, budget, said.append)


def test_a_clean_suite_is_one_screen(tmp_path: Path, bench: FakeDuets) -> None:
    trial = run_trial(begin_trial(make_session(tmp_path, bench), 0, AA))
    assert [call["launches"] for call in bench.calls] == ["2", "2"]
    assert all(call["head"] == call["base"] == "b/modules" for call in bench.calls)
    assert not any("plant" in call for call in bench.calls)
    assert [row.row for row in trial.rows] == [row.id for row in ROWS]
    assert all(len(row.first) == 4 and not row.second for row in trial.rows)
    assert (trial.kind, trial.cases, trial.card, trial.seconds) == (AA, 3, "1a2b3c4d", 12.0)


def test_seeds_differ_from_call_to_call_and_from_trial_to_trial(
    tmp_path: Path, bench: FakeDuets
) -> None:
    session = make_session(tmp_path, bench)
    first, second = (
        run_trial(begin_trial(session, 0, AA)),
        run_trial(begin_trial(session, 1, PLANTED)),
    )
    seeds = [int(call["seed"]) for call in bench.calls]
    assert len(set(seeds)) == len(seeds)
    assert (first.seed, second.seed) == (trial_seed(session, 0), trial_seed(session, 1))
    # Of the screen's two runs: gpulift-bench counts from the seed on which side prepares first.
    screen = [int(call["seed"]) % 4 for call in bench.calls[:2]]
    assert [int(call["launches"]) for call in bench.calls[:2]] == [2, 2]
    assert screen == [0, 2]


def test_a_screen_of_rows_that_vary_goes_on(tmp_path: Path, bench: FakeDuets) -> None:
    bench.noise = 0.03
    trial = run_trial(begin_trial(make_session(tmp_path, bench, limit_s=1e6), 0, AA))
    assert [call["launches"] for call in bench.calls[:4]] == ["2", "2", "4", "8"]
    assert {len(row.first) for row in trial.rows} == {16}
    assert all(len(row.base_s) == len(row.first) for row in trial.rows)


def test_what_a_suite_flags_is_confirmed_on_fresh_launches(
    tmp_path: Path, bench: FakeDuets
) -> None:
    bench.bias = {ROWS[0].id: 0.01}
    trial = run_trial(begin_trial(make_session(tmp_path, bench), 0, AA))
    assert [call["launches"] for call in bench.calls] == ["2", "2", "8"]
    assert [len(row.second) for row in trial.rows] == [8, 0, 0]
    assert trial.verdict(trial.rows[0]).verdict == "regressed"
    assert len(set(trial.rows[0].first) | set(trial.rows[0].second)) == 12


def test_later_looks_add_to_the_earlier_ones(tmp_path: Path, bench: FakeDuets) -> None:
    bench.bias = {ROWS[0].id: 0.0045}
    bench.noise = 2e-3
    for number in range(40):
        trial = run_trial(begin_trial(make_session(tmp_path, bench), number, AA))
        if len(trial.rows[0].second) == 32:
            break
    assert [call["launches"] for call in bench.calls][-3:] == ["8", "8", "16"]
    assert trial.rows[0].outcome == "ok"


def test_planted_slow_downs_are_found_and_verified(tmp_path: Path, bench: FakeDuets) -> None:
    session = make_session(tmp_path, bench)
    trial = run_trial(begin_trial(session, 0, PLANTED))
    parts = plant(ROWS, trial_seed(session, 0))
    sizes = {row.id: part.size for part in parts for row in part.rows}
    assert {row.row: row.size for row in trial.rows} == sizes
    assert trial.schedule_sha256 == schedule_hash(sizes)
    assert {float(call["plant"]) for call in bench.calls} == {part.size for part in parts}
    for row in trial.rows:
        assert row.planted == pytest.approx([1.02 * row.size] * row.launches, abs=1e-6)
        expected = "regressed" if row.size >= 0.005 else "equivalent"
        assert trial.verdict(row).verdict == expected


def test_a_row_says_what_bounds_it(tmp_path: Path, bench: FakeDuets) -> None:
    trial = run_trial(begin_trial(make_session(tmp_path, bench), 0, AA))
    assert [row.on_gpu for row in trial.rows] == [True, True, False]


def test_other_rules_judge_the_launches_of_the_screen(tmp_path: Path, bench: FakeDuets) -> None:
    trial = run_trial(begin_trial(make_session(tmp_path, bench), 0, AA))
    assert {one.trials for one in trial.one_launch} == {6}  # three rows, two pairs of launches
    assert len(trial.one_launch) == 3
    assert len(trial.rows[0].base_s) == len(trial.rows[0].head_cycles) == 4


def test_a_crash_is_an_error_of_that_row_in_that_trial(tmp_path: Path, bench: FakeDuets) -> None:
    bench.broken = {ROWS[1].id: ("error", "ended by SIGSEGV")}
    trial = run_trial(begin_trial(make_session(tmp_path, bench), 0, AA))
    assert [row.outcome for row in trial.rows] == ["ok", "error", "ok"]
    assert trial.cases == 2
    assert "ended by SIGSEGV" in issue([trial]).errors[0].reason
    assert [arm for _, _, arm in rows_in(Path(bench.calls[1]["rows"]))] == ["copy", "plain"]


def test_a_crash_in_the_second_stage_is_an_error_too(tmp_path: Path, bench: FakeDuets) -> None:
    bench.bias = {ROWS[0].id: 0.01}

    def crash(number: int) -> None:
        bench.broken = {ROWS[0].id: ("error", "ended by SIGBUS")} if number == 3 else {}

    bench.on_call = crash
    trial = run_trial(begin_trial(make_session(tmp_path, bench), 0, AA))
    assert trial.rows[0].outcome == "error"
    assert issue([trial]).aa.alarms == 0


def test_skipped_rows_take_no_part(tmp_path: Path, bench: FakeDuets) -> None:
    bench.broken = {ROWS[1].id: ("skipped", "too little memory")}
    trial = run_trial(begin_trial(make_session(tmp_path, bench), 0, AA))
    assert trial.rows[1].outcome == "skipped"
    assert trial.cases == 2


def test_both_kinds_get_their_share_until_the_time_is_over(
    tmp_path: Path, bench: FakeDuets
) -> None:
    session = make_session(tmp_path, bench, limit_s=200)
    trials = measure_trials(session)
    kinds = [trial.kind for trial in trials]
    assert kinds[:2] == [AA, PLANTED]
    assert kinds.count(AA) > kinds.count(PLANTED) > 1  # a suite is shorter
    spent_s = {
        kind: sum(one.seconds for one in trials[:-1] if one.kind == kind) for kind in (AA, PLANTED)
    }
    longest_s = max(one.seconds for one in trials)
    assert abs(spent_s[AA] - spent_s[PLANTED]) <= longest_s
    assert bench.now_s <= 200
    assert finished_trials(session) == trials


def test_a_trial_that_would_not_end_in_time_is_not_begun(tmp_path: Path, bench: FakeDuets) -> None:
    trials = measure_trials(make_session(tmp_path, bench, limit_s=20))
    assert [trial.kind for trial in trials] == [AA]
    assert bench.now_s == 12


def test_no_time_for_one_trial_is_refused_before_measuring(
    tmp_path: Path, bench: FakeDuets
) -> None:
    with pytest.raises(OutOfTimeError, match="a trial of 3 rows takes about 20 s") as refused:
        measure_trials(make_session(tmp_path, bench, limit_s=11))
    assert refused.value.exit_code == 2
    assert not bench.calls


def test_a_first_trial_that_turns_out_too_long_is_refused_with_its_time(
    tmp_path: Path, bench: FakeDuets
) -> None:
    bench.row_launch_s = 10.0
    with pytest.raises(OutOfTimeError, match="takes about 200 s"):
        measure_trials(make_session(tmp_path, bench, limit_s=100))
    assert len(bench.calls) == 1


def test_no_time_for_one_more_trial_is_said(tmp_path: Path, bench: FakeDuets) -> None:
    measure_trials(make_session(tmp_path, bench, limit_s=20))
    with pytest.raises(OutOfTimeError, match="a trial of 3 rows takes about 20 s"):
        measure_trials(make_session(tmp_path, bench, limit_s=bench.now_s - 1))
    assert len(finished_trials(make_session(tmp_path, bench))) == 1


def test_where_a_planted_trial_does_not_fit_a_suite_does(tmp_path: Path, bench: FakeDuets) -> None:
    trials = measure_trials(make_session(tmp_path, bench, limit_s=32))
    assert [trial.kind for trial in trials] == [AA, AA]


def test_a_planted_trial_of_rows_that_vary_is_planned_as_long_as_they_need(
    tmp_path: Path, bench: FakeDuets
) -> None:
    bench.noise = 0.005
    trials = measure_trials(make_session(tmp_path, bench, limit_s=170))
    assert [trial.kind for trial in trials] == [AA, AA]
    assert bench.now_s == 96


def test_a_trial_is_planned_as_long_as_the_longest_of_its_kind(
    tmp_path: Path, bench: FakeDuets
) -> None:
    def calm_down(number: int) -> None:
        bench.noise = 0.03 if number <= 4 else 2e-4  # the first suite takes four calls

    bench.on_call = calm_down
    session = replace(make_session(tmp_path, bench, limit_s=2 * 48 + 128), sizes=())
    trials = measure_trials(session)
    assert [trial.seconds for trial in trials] == [48.0, 12.0]


def test_a_screen_that_goes_on_is_broken_off_when_the_time_is_over_and_gone_on_with(
    tmp_path: Path, bench: FakeDuets
) -> None:
    bench.noise = 0.03
    with pytest.raises(OutOfTimeError, match="a trial of 3 rows takes about 176 s"):
        measure_trials(make_session(tmp_path, bench, limit_s=20))
    assert bench.now_s == 12
    trials = measure_trials(make_session(tmp_path, bench, limit_s=bench.now_s + 176))
    assert trials[0].number == 0
    assert {len(row.first) for row in trials[0].rows} == {16}


def test_every_screen_of_a_planted_trial_ends_before_any_confirmation(
    tmp_path: Path, bench: FakeDuets
) -> None:
    """Else those with much to confirm would be broken off in a later screen."""
    bench.noise = 0.01
    trial = run_trial(begin_trial(make_session(tmp_path, bench, limit_s=1e6), 0, PLANTED))
    stages = [Path(call["records"]).parent.name for call in bench.calls]
    assert stages == sorted(stages)
    assert any(row.second for row in trial.rows)
    assert max(len(row.first) for row in trial.rows) > 4


def test_later_trials_recall_what_the_first_launches_searched(
    tmp_path: Path, bench: FakeDuets
) -> None:
    measure_trials(make_session(tmp_path, bench, limit_s=60))
    first = tmp_path / "trial-0000" / "aa" / "stage1" / "launch-0000"
    assert "recall" not in bench.calls[0]
    assert {call["recall"] for call in bench.calls[1:]} == {str(first)}


def test_what_earlier_trials_took_is_known_when_going_on(tmp_path: Path, bench: FakeDuets) -> None:
    bench.row_launch_s = 10.0
    measure_trials(make_session(tmp_path, bench, limit_s=200))
    calls = len(bench.calls)
    with pytest.raises(OutOfTimeError, match="takes about 200 s"):
        measure_trials(make_session(tmp_path, bench, limit_s=100))
    assert len(bench.calls) == calls


def test_the_confirmation_of_a_row_is_reserved(tmp_path: Path, bench: FakeDuets) -> None:
    bench.bias = {ROWS[0].id: 0.01}
    with pytest.raises(OutOfTimeError, match="a trial of 3 rows takes about 20 s"):
        measure_trials(make_session(tmp_path, bench, limit_s=19))
    assert not bench.calls
    trials = measure_trials(make_session(tmp_path, bench, limit_s=20))
    assert len(trials[0].rows[0].second) == 8
    assert bench.now_s == 20


@pytest.mark.parametrize("limit_s", [12 + 36 + 128 - 1, 12 + 36 + 128])
@pytest.mark.parametrize("biased", [0, 1, 3])
def test_whether_a_trial_is_broken_off_never_depends_on_what_it_finds(
    tmp_path: Path, bench: FakeDuets, limit_s: float, biased: int
) -> None:
    """Else trials with an alarm would be left out, and their share would come out too low."""
    bench.noise = 0.03
    bench.bias = {row.id: 0.1 for row in ROWS[:biased]}
    session = replace(make_session(tmp_path, bench, limit_s), sizes=())
    if limit_s < 12 + 36 + 128:
        with pytest.raises(OutOfTimeError, match="takes about 176 s"):
            measure_trials(session)
        assert bench.now_s == 12
    else:
        trials = measure_trials(session)
        found = [trials[0].verdict(row).verdict for row in trials[0].rows]
        assert found.count("regressed") == biased


def test_a_trial_that_is_gone_on_with_takes_as_much_time_as_it_did(
    tmp_path: Path, bench: FakeDuets
) -> None:
    """Its first launches alone decide, not what it has measured since."""
    bench.noise, bench.bias, bench.exit_codes = 0.03, {ROWS[0].id: 0.1}, {5: 130}
    with pytest.raises(GpuliftError, match="interrupted"):
        measure_trials(make_session(tmp_path, bench, limit_s=1e6))
    bench.exit_codes = {}
    with pytest.raises(OutOfTimeError):
        measure_trials(make_session(tmp_path, bench, limit_s=12 + 36 + 128 - 1))
    measure_trials(make_session(tmp_path, bench, limit_s=12 + 36 + 128))


def test_what_clears_a_row_follows_from_its_spread_alone() -> None:
    spread = [-1.5, -0.5, 0.5, 1.5]  # of which one standard deviation is 1.29
    known = {1e-4: 8, 0.004: 16, 0.006: 32, 0.009: 64, 0.012: 128, 9.0: 128}
    for error, launches in known.items():
        for mean in (0.0, 0.01, -5.0):
            values = [mean + one * error / 1.291 for one in spread]
            assert clearing_launches(values) == launches
    assert clearing_launches([0.1]) == clearing_launches([]) == 8


def test_confirmation_goes_on_after_the_time_is_over(tmp_path: Path, bench: FakeDuets) -> None:
    """Else trials with an alarm would be the ones that are left out."""
    bench.bias = {row.id: 0.01 for row in ROWS}
    said: list[str] = []
    trials = measure_trials(replace(make_session(tmp_path, bench, limit_s=20), say=said.append))
    assert "trial 0: 24 launches to confirm what was seen take about 24 s and go on" in said[1]
    assert len(trials) == 1
    assert [len(row.second) for row in trials[0].rows] == [8, 8, 8]
    assert bench.now_s == 36


def test_a_session_without_a_finished_trial_claims_to_keep_none(tmp_path: Path) -> None:
    assert kept(tmp_path) == f"go on with certify --out {tmp_path}"


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        (130, 130, "interrupted: the finished trials are kept"),
        (-2, 130, "interrupted"),
        (-15, 143, "ended by SIGTERM"),
        (-11, 1, "ended by SIGSEGV"),
        (2, 2, "refused"),
        (4, 4, "refused"),
    ],
)
def test_what_ends_gpulift_bench_ends_the_session(
    tmp_path: Path, bench: FakeDuets, code: int, expected: int, words: str
) -> None:
    bench.exit_codes = {4: code}
    session = make_session(tmp_path, bench)
    with pytest.raises(GpuliftError, match=words) as refused:
        measure_trials(session)
    assert refused.value.exit_code == expected
    assert str(tmp_path) in str(refused.value)
    assert [trial.kind for trial in finished_trials(session)] == [AA]


def test_an_interrupt_between_calls_keeps_the_finished_trials(
    tmp_path: Path, bench: FakeDuets
) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    bench.on_call = interrupt
    session = make_session(tmp_path, bench)
    with pytest.raises(GpuliftError, match="interrupted") as refused:
        measure_trials(session)
    assert refused.value.exit_code == 130
    assert len(finished_trials(session)) == 1


def test_an_interrupted_session_is_gone_on_with(tmp_path: Path, bench: FakeDuets) -> None:
    bench.exit_codes = {4: 130}
    with pytest.raises(GpuliftError):
        measure_trials(make_session(tmp_path, bench))
    first = finished_trials(make_session(tmp_path, bench))
    bench.exit_codes = {}
    trials = measure_trials(make_session(tmp_path, bench, limit_s=bench.now_s + 60))
    assert trials[: len(first)] == first
    assert [one.number for one in trials[1:3]] == [1, 2]
    assert trials[1].kind == PLANTED


def test_a_trial_that_was_broken_off_ends_as_if_it_had_not_been(
    tmp_path: Path, bench: FakeDuets
) -> None:
    """Else those that take long, because there is something to confirm, would be left out."""
    bench.bias = {ROWS[0].id: 0.01}
    whole = measure_trials(make_session(tmp_path / "whole", bench, limit_s=20))
    bench.now_s, bench.exit_codes = 0.0, {len(bench.calls) + 3: 130}  # its confirmation
    with pytest.raises(GpuliftError, match="go on with certify --out"):
        measure_trials(make_session(tmp_path / "cut", bench, limit_s=20))
    bench.exit_codes = {}
    said: list[str] = []
    session = replace(make_session(tmp_path / "cut", bench, limit_s=20), say=said.append)
    trials = measure_trials(session)
    assert trials[0].rows == whole[0].rows
    assert "trial 0: was broken off and is gone on with" in said[0]


def test_a_trial_is_not_gone_on_with_on_other_rows(tmp_path: Path, bench: FakeDuets) -> None:
    bench.exit_codes = {1: 130}
    session = make_session(tmp_path, bench)
    with pytest.raises(GpuliftError, match="interrupted"):
        measure_trials(session)
    with pytest.raises(GpuliftError, match="begun with other rows or another seed") as refused:
        measure_trials(replace(session, rows=ROWS[:2]))
    assert refused.value.exit_code == 4


def test_a_card_that_changes_in_the_midst_of_a_trial_is_refused(
    tmp_path: Path, bench: FakeDuets
) -> None:
    other = {**bench.context, "gpu": {**bench.context["gpu"], "card": "ffffffff"}}

    def change(call: int) -> None:
        if call == 2:
            bench.context = other

    bench.on_call = change
    with pytest.raises(GpuliftError, match=r"gpu\.card changed in the midst of the tr") as refused:
        measure_trials(make_session(tmp_path, bench))
    assert refused.value.exit_code == 4
    assert not (tmp_path / TRIALS_FILE).exists()


def test_a_cut_line_is_dropped_with_a_warning_and_not_appended_to(
    tmp_path: Path, bench: FakeDuets
) -> None:
    session = make_session(tmp_path, bench, limit_s=20)
    measure_trials(session)
    file = tmp_path / TRIALS_FILE
    whole = file.read_text()
    file.write_text(whole + whole[:50])
    said: list[str] = []
    trials = finished_trials(replace(session, say=said.append))
    assert len(trials) == 1
    assert "cut off" in said[0]
    assert file.read_text() == whole


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": "nvidia-b200"}, "of another machine"),
        ({"commit": "fffffff"}, "of another commit"),
        ({"build": "0123456789ab"}, "of another build"),
        ({"arm_time_s": 1.0}, "of another arm time"),
        ({"decision_method": "0"}, "of another decision method"),
    ],
)
def test_a_folder_of_another_session_is_refused(
    tmp_path: Path, bench: FakeDuets, change: dict[str, object], words: str
) -> None:
    other = replace(unchanged(0), **change)  # type: ignore[arg-type]
    (tmp_path / TRIALS_FILE).write_text(line_of(other) + "\n")
    with pytest.raises(GpuliftError, match=words) as refused:
        measure_trials(make_session(tmp_path, bench))
    assert refused.value.exit_code == 4
    assert not bench.calls


def test_nothing_recorded_is_said(
    tmp_path: Path, bench: FakeDuets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "measure", lambda bench, flags: 77)
    with pytest.raises(GpuliftError, match="nothing was recorded") as refused:
        measure_trials(make_session(tmp_path, bench))
    assert refused.value.exit_code == 77


def test_a_planted_note_that_is_no_number_is_refused(tmp_path: Path, bench: FakeDuets) -> None:
    bench.note = "much"
    with pytest.raises(GpuliftError, match=r"jsonl:1: notes.planted must be a number"):
        run_trial(begin_trial(make_session(tmp_path, bench), 0, PLANTED))


def test_a_plant_is_fixed_by_its_seed_and_uses_every_size() -> None:
    rows = [Row("t", "", f"arm{i}") for i in range(60)]
    parts = plant(rows, 7)
    assert parts == plant(rows, 7) != plant(rows, 8)
    assert [part.size for part in parts] == list(SIZES)
    assert [len(part.rows) for part in parts] == [10] * 5
    assert len({row for part in parts for row in part.rows}) == 50


def test_a_plant_of_one_row_is_never_empty() -> None:
    assert all(plant(ROWS[:1], seed) for seed in range(50))


def test_a_trial_is_next_of_the_kind_that_there_is_less_of() -> None:
    assert next_kind([]) == AA
    assert next_kind([unchanged(0)]) == PLANTED
    assert next_kind([unchanged(0), planted(1, {"a/b/c": 0.01})]) == AA
