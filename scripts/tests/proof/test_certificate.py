"""From trials to a certificate."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gpulift.gate.certificate import (
    UnchangedRow,
    UnsteadyRow,
    file_of,
    find_certificate,
    read_certificate,
    sentence,
)
from gpulift.ground.errors import GpuliftError
from gpulift.verdicts.decision import DECISION_METHOD
from gpulift.verdicts.stats import upper_bound
from proof.certificate import issue, lower_bound, write_certificate
from proof.trials import ORDER_CARRIED_FROM, line_of, read_trials
from tests.conftest import CHECKOUT
from tests.trials_made import ROWS, noise, planted, row, trial, unchanged

GPU, HOST = ROWS
ALARM = [0.02, 0.0201, 0.0199, 0.02]


def test_bounds_are_those_of_clopper_and_pearson() -> None:
    assert upper_bound(0, 30) == pytest.approx(1 - 0.05 ** (1 / 30))
    assert upper_bound(2, 30) == pytest.approx(stats.beta.ppf(0.95, 3, 28))
    assert lower_bound(58, 58) == pytest.approx(0.05 ** (1 / 58))
    assert (upper_bound(0, 0), lower_bound(0, 0)) == (1.0, 0.0)


def test_clean_suites_give_no_alarm() -> None:
    made = issue([unchanged(number) for number in range(30)])
    assert (made.aa.suites, made.aa.alarms) == (30, 0)
    assert made.aa.upper == pytest.approx(0.0950, abs=1e-4)
    assert not made.alarms
    assert not made.detection
    assert "0 of 30 A/A suites raised an alarm (95 % bound 9.5 %)" in sentence(made)
    assert "no slow-down was planted" in sentence(made)


@pytest.mark.parametrize(("sign", "verdict"), [(1, "regressed"), (-1, "improved")])
def test_an_alarm_is_counted_once_per_suite_and_named(sign: int, verdict: str) -> None:
    values = sign * np.array(ALARM)
    bad = trial(0, [row(name, values, [*values, *values]) for name in ROWS])
    made = issue([bad, unchanged(1)])
    assert (made.aa.suites, made.aa.alarms) == (2, 1)
    assert [(one.trial, one.row, one.verdict) for one in made.alarms] == [
        (bad.id, name, verdict) for name in ROWS
    ]
    assert made.alarms[0].change == pytest.approx(math.expm1(sign * 0.02), abs=1e-6)


def test_suites_that_leave_a_row_inconclusive_are_counted_by_row() -> None:
    steady, noisy = ROWS
    wide = np.linspace(-0.05, 0.05, 16)
    made = issue(
        [
            trial(0, [row(steady, [1e-4, -1e-4, 0.0, 2e-4]), row(noisy, wide)]),
            trial(1, [row(steady, [0.0, -1e-4, 0.0, 2e-4]), row(noisy, wide[::-1])]),
            trial(2, [row(noisy, [0.0, -1e-4, 0.0, 2e-4])]),
        ]
    )
    assert made.unchanged == (UnchangedRow(steady, 2, 0), UnchangedRow(noisy, 3, 2))
    assert made.unsteady == (UnsteadyRow(noisy, 3, 2),)


def test_half_of_the_suites_are_not_most() -> None:
    noisy = ROWS[1]
    made = issue(
        [
            trial(0, [row(noisy, np.linspace(-0.05, 0.05, 16))]),
            trial(1, [row(noisy, [0.0, -1e-4, 0.0, 2e-4])]),
        ]
    )
    assert made.unchanged == (UnchangedRow(noisy, 2, 1),)
    assert made.unsteady == ()


def test_a_planted_slow_down_that_is_left_inconclusive_tells_of_an_unsteady_row() -> None:
    decided = trial(0, [row(HOST, [0.0, -1e-4, 0.0, 2e-4])])
    missed = planted(1, {HOST: 0.005}, blind=[HOST])  # as equivalent: no doubt
    wide = np.linspace(-0.05, 0.05, 16)
    noisy = [trial(number, [row(HOST, wide + number * 1e-4, size=0.02)]) for number in (2, 3)]
    made = issue([decided, missed, *noisy])
    assert [one.verdict for one in made.missed] == ["equivalent", "inconclusive", "inconclusive"]
    assert made.unsteady == (UnsteadyRow(HOST, 3, 2),)
    assert issue([decided, missed, noisy[0]]).unsteady == ()


def test_an_alarm_of_the_screen_alone_is_none() -> None:
    fresh = [0.0001, -0.0001, 0.0002, -0.0002] * 2
    made = issue([trial(0, [row(GPU, ALARM, fresh)])])
    assert made.aa.alarms == 0


def test_detection_is_per_size_and_per_what_bounds_the_row() -> None:
    trials = [planted(number, {GPU: 0.005, HOST: 0.01}) for number in range(3)]
    trials.append(planted(3, {GPU: 0.005, HOST: 0.005}, blind=[HOST]))
    made = issue(trials)
    lines = {(one.size, one.bound_by): one for one in made.detection}
    assert {key: (one.found, one.trials) for key, one in lines.items()} == {
        (0.005, "GPU"): (4, 4),
        (0.005, "launches or host"): (0, 1),
        (0.01, "launches or host"): (3, 3),
    }
    assert lines[(0.005, "GPU")].lower == pytest.approx(0.05 ** (1 / 4))
    assert lines[(0.005, "GPU")].verified_median == pytest.approx(0.0051)
    assert [(one.row, one.size, one.verdict) for one in made.missed] == [
        (HOST, 0.005, "equivalent")
    ]
    assert "0.5 % in 4 of 5, 1 % in 3 of 3 trials" in sentence(made)


def test_a_slow_down_called_improved_is_missed() -> None:
    values = -np.array(ALARM)
    made = issue([trial(0, [row(GPU, values, [*values, *values], size=0.02)])])
    assert made.detection[0].found == 0
    assert made.missed[0].verdict == "improved"


def test_a_row_without_a_bias_needs_no_floor() -> None:
    made = issue([unchanged(number) for number in range(10)])
    assert made.floors == {}


def test_a_row_whose_bias_may_exceed_the_least_change_gets_a_floor() -> None:
    made = issue([unchanged(number, {HOST: 0.003}) for number in range(10)])
    assert set(made.floors) == {HOST} == set(made.floor_reasons)
    values = np.concatenate([noise(number, 4, HOST) + 0.003 for number in range(10)])
    half = stats.t.ppf(0.975, 39) * np.std(values, ddof=1) / math.sqrt(40)
    assert made.floors[HOST] == pytest.approx(math.expm1(abs(np.mean(values)) + half))


def test_a_missed_half_percent_gives_the_next_size_found_as_floor() -> None:
    trials = [
        planted(0, {HOST: 0.005}, blind=[HOST]),
        planted(1, {HOST: 0.01}),
        planted(2, {HOST: 0.02}),
    ]
    assert issue(trials).floors == {HOST: 0.01}
    trials.append(planted(3, {HOST: 0.01}, blind=[HOST]))
    assert issue(trials).floors == {HOST: 0.02}


def test_a_size_found_once_and_missed_once_is_not_found() -> None:
    trials = [
        planted(0, {HOST: 0.005}),
        planted(1, {HOST: 0.005}, [HOST]),
        planted(2, {HOST: 0.05}),
    ]
    assert issue(trials).floors == {HOST: 0.05}


@pytest.mark.parametrize(("size", "named"), [(0.02, "2 %"), (0.05, "5 %")])
def test_a_miss_with_nothing_larger_planted_says_that_no_size_was_found(
    tmp_path: Path, size: float, named: str
) -> None:
    made = issue([planted(0, {HOST: 0.005}), planted(1, {HOST: size}, blind=[HOST])])
    assert made.floors == {HOST: 0.999}
    assert made.floor_reasons == {HOST: f"{named} was missed, and nothing larger was planted"}
    write_certificate(made, file_of(tmp_path, made.machine))
    assert find_certificate(tmp_path, made.machine) == made


def test_a_miss_that_was_left_open_asks_for_what_would_have_been_seen() -> None:
    wide = np.array([0.05, -0.05, -0.04, 0.04] * 4)
    noisy = [trial(number, [row(HOST, wide * number, size=0.02)]) for number in (1, 2)]
    made = issue(noisy)
    seen = noisy[1].verdict(noisy[1].rows[0]).smallest_effect
    assert seen is not None
    assert made.floors == {HOST: pytest.approx(seen)}
    assert 0.02 < seen < 0.999
    assert made.floor_reasons[HOST].startswith("2 % was left open, and ")
    taken_for_equal = planted(3, {HOST: 0.02}, blind=[HOST])
    assert issue([*noisy, taken_for_equal]).floors == {HOST: 0.999}


def test_a_missed_size_below_half_a_percent_asks_for_no_floor() -> None:
    made = issue([planted(0, {HOST: 0.002}, blind=[HOST])])
    assert made.floors == {}
    assert len(made.missed) == 1


def test_the_larger_of_two_floors_counts() -> None:
    trials = [unchanged(number, {HOST: 0.003}) for number in range(5)]
    trials += [planted(5, {HOST: 0.005}, blind=[HOST]), planted(6, {HOST: 0.02})]
    assert issue(trials).floors == {HOST: 0.02}


def test_rows_that_were_not_measured_are_listed_and_count_nowhere() -> None:
    gone = row(HOST, [], outcome="error", reason="head: crashed")
    lost = row(HOST, [], size=0.05, outcome="error", reason="head: crashed")
    made = issue([trial(0, [row(GPU, noise(0, 4)), gone]), trial(1, [lost])])
    assert [(one.row, one.reason) for one in made.errors] == [(HOST, "error: head: crashed")] * 2
    assert made.aa.suites == 1
    assert not made.detection
    assert not made.missed


def test_a_suite_without_a_measured_row_is_not_a_clean_one() -> None:
    gone = trial(0, [row(HOST, [], outcome="error", reason="head: crashed")])
    made = issue([gone])
    assert (made.aa.suites, made.aa.upper) == (0, 1.0)
    assert len(made.errors) == 1


def test_the_order_of_the_trials_does_not_matter() -> None:
    trials = [unchanged(0), planted(1, {GPU: 0.005}), unchanged(2, {HOST: 0.003})]
    assert issue(trials) == issue(trials[::-1])


def test_cards_and_drivers_are_listed_without_repeats() -> None:
    trials = [unchanged(0), replace(unchanged(1), card="99999999", driver="590"), unchanged(2)]
    made = issue(trials)
    assert made.cards == ("1a2b3c4d", "99999999")
    assert made.drivers == ("580.159.04", "590")
    assert sentence(made).startswith("nvidia-h200 (2 cards): ")


@pytest.mark.parametrize("commit", ["", "unknown"])
def test_a_build_without_a_commit_is_not_citable(commit: str) -> None:
    made = issue([unchanged(0), replace(unchanged(1), commit=commit)])
    assert not made.citable
    assert "commit is not known" in made.caveat
    assert f"not citable: {made.caveat}" in sentence(made)
    assert issue([unchanged(0)]).citable


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": "nvidia-b200"}, "several machines: nvidia-b200, nvidia-h200"),
        ({"method": "2"}, "several measuring methods: 1, 2"),
        ({"arm_time_s": 0.5}, "several arm times: 0.2, 0.5"),
        ({"decision_method": "0"}, f"decision method 0, and this is {DECISION_METHOD}"),
    ],
)
def test_trials_that_do_not_go_together_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(GpuliftError, match=words) as refused:
        issue([unchanged(0), replace(unchanged(1), **change)])  # type: ignore[arg-type]
    assert refused.value.exit_code == 4


def test_a_trial_that_is_there_twice_is_refused() -> None:
    with pytest.raises(GpuliftError, match="twice") as refused:
        issue([unchanged(0), unchanged(1), unchanged(0)])
    assert refused.value.exit_code == 2


def test_no_trial_at_all_is_refused() -> None:
    with pytest.raises(GpuliftError, match="no finished trial"):
        issue([])


def test_a_certificate_is_read_back_as_it_was_issued(tmp_path: Path) -> None:
    trials = [unchanged(number, {HOST: 0.003}) for number in range(8)]
    trials += [planted(8, {GPU: 0.005, HOST: 0.01}, blind=[HOST])]
    made = issue(trials)
    write_certificate(made, file_of(tmp_path, made.machine))
    assert find_certificate(tmp_path, "nvidia-h200") == made


# --- Files of trials ---


def write(file: Path, *lines: str) -> Path:
    file.write_text("".join(lines), encoding="utf-8")
    return file


def test_trials_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    trials = [unchanged(0), planted(1, {GPU: 0.005})]
    file = write(tmp_path / "trials.jsonl", *(line_of(one) + "\n" for one in trials))
    found, warnings = read_trials(file)
    assert found == trials
    assert [one.id for one in found] == [one.id for one in trials]
    assert not warnings


def test_a_last_line_that_was_cut_off_is_dropped_with_a_warning(tmp_path: Path) -> None:
    line = line_of(unchanged(0)) + "\n"
    found, warnings = read_trials(write(tmp_path / "trials.jsonl", line, line[:100]))
    assert len(found) == 1
    assert "trials.jsonl:2: the last trial is cut off" in warnings[0]


def test_a_damaged_line_before_others_is_an_error(tmp_path: Path) -> None:
    line = line_of(unchanged(0)) + "\n"
    with pytest.raises(GpuliftError, match=r"trials.jsonl:1: not a line of JSON"):
        read_trials(write(tmp_path / "trials.jsonl", line[:100] + "\n", line))


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="cannot be read"):
        read_trials(tmp_path / "none.trials")


ROW, LARGER = (asdict(planted(0, {GPU: 0.005}))["rows"][0], {"size": 0.02})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "ab"}, "kind must be one of aa, planted"),
        ({"schema": "2.0"}, "schema is 2.0"),
        ({"more": 1}, "more is not known here"),
        ({"seconds": -1}, "seconds must be float >= 0"),
        ({"cases": None}, "cases must be int, not null"),
        ({"schedule_sha256": "0" * 64}, "schedule_sha256 is not that of the rows"),
        ({"rows": [ROW | LARGER]}, "schedule_sha256 is not that of the rows"),
        ({"rows": [ROW, ROW]}, "names a row twice"),
        ({"kind": "aa"}, "sizes that do not go with a trial of kind aa"),
    ],
)
def test_what_is_no_trial_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    content = {**asdict(planted(0, {GPU: 0.005})), **change}
    with pytest.raises(GpuliftError, match=words):
        read_trials(write(tmp_path / "x.trials", json.dumps(content) + "\n"))


def test_gates_of_one_row_of_a_few_and_of_suites_stand_apart() -> None:
    few = [f"ceiling/memory/n:{number}/copy" for number in range(5)]
    many = [*few, ROWS[1]]
    trials = [
        planted(1, {ROWS[0]: 0.01}),
        planted(2, {ROWS[0]: 0.01}, blind=ROWS),
        replace(planted(3, {ROWS[0]: 0.01}), started_at=ORDER_CARRIED_FROM),
        planted(4, dict.fromkeys(few, 0.01)),
        planted(5, dict.fromkeys(many, 0.01), blind=[ROWS[1]]),
        unchanged(6, {ROWS[0]: 0.01}),
        unchanged(7),
        replace(unchanged(8), started_at=ORDER_CARRIED_FROM),
        replace(planted(9, {ROWS[0]: 0.02}), cases=32),
    ]
    made = issue(trials)
    assert [
        (one.gate, one.order_carried, one.size, one.found, one.trials)
        for one in made.detection_by_gate
    ] == [
        ("1 row", False, 0.01, 1, 2),
        ("1 row", True, 0.01, 1, 1),
        ("2 to 5 rows", False, 0.01, 5, 5),
        ("6 rows or more", False, 0.01, 5, 6),
        ("6 rows or more", False, 0.02, 1, 1),
    ]
    assert made.detection_by_gate[0].lower == lower_bound(1, 2)
    assert [
        (one.gate, one.order_carried, one.alarms, one.suites) for one in made.suites_by_gate
    ] == [("2 to 5 rows", False, 0, 2), ("2 to 5 rows", True, 0, 1)]


def test_each_row_has_a_bound_of_its_own() -> None:
    made = issue([planted(1, {ROWS[0]: 0.01, ROWS[1]: 0.005}, blind=[ROWS[1]])])
    assert [
        (one.row, one.size, one.found, one.trials, one.lower) for one in made.detection_by_row
    ] == [(ROWS[0], 0.01, 1, 1, lower_bound(1, 1)), (ROWS[1], 0.005, 0, 1, 0.0)]


def test_the_committed_certificate_has_its_trials_by_gate_and_by_row() -> None:
    certificate = read_certificate(file_of(CHECKOUT / "results", "nvidia-h200"))
    trials = sum(one.trials for one in certificate.detection)
    assert trials == sum(one.trials for one in certificate.detection_by_row)
    assert trials == sum(one.trials for one in certificate.detection_by_gate)
    assert certificate.aa.suites == sum(one.suites for one in certificate.suites_by_gate)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(GpuliftError, match="cannot be written") as refused:
        write_certificate(issue([unchanged(0)]), tmp_path / "taken" / "x.json")
    assert refused.value.exit_code == 2
