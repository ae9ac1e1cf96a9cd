"""Measuring trials: what is asked of gpulift-bench, what becomes of the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gpulift.engine import machine
from gpulift.engine.runs import Wanted
from gpulift.gate.certificate import read_certificate
from gpulift.gate.evidence import Row
from gpulift.ground.errors import GpuliftError
from gpulift.records.parse import read_context
from proof.certificate import issue
from proof.certify import (
    TRIALS_FILE,
    Session,
    certify,
    finished_trials,
    measurable_rows,
    measure,
    run_trial,
)
from proof.trials import AA, PLANTED, SIZES, line_of, plant, read_trials, schedule_hash
from tests import sample
from tests.conftest import CHECKOUT
from tests.fake_duets import ROWS, FakeDuets
from tests.fake_gate import rows_in
from tests.trials_made import unchanged

pytestmark = pytest.mark.world


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeDuets:
    fake = FakeDuets()
    fake.install(monkeypatch)
    return fake


def make_session(folder: Path) -> Session:
    want = Wanted("nvidia-h200", "abc1234", False, {})
    return Session(folder, Path("b/gpulift-bench"), want, ROWS, 1, None)


def test_a_clean_suite_is_one_screen(tmp_path: Path, bench: FakeDuets) -> None:
    trial = run_trial(make_session(tmp_path), 0)
    assert [call["launches"] for call in bench.calls] == ["2", "2"]
    assert all(call["head"] == call["base"] == "b/modules" for call in bench.calls)
    assert not any("plant" in call for call in bench.calls)
    assert [row.row for row in trial.rows] == [row.id for row in ROWS]
    assert all(len(row.first) == 4 and not row.second for row in trial.rows)
    assert (trial.kind, trial.cases, trial.card) == (AA, 3, "1a2b3c4d")


def test_seeds_differ_from_call_to_call_and_from_trial_to_trial(
    tmp_path: Path, bench: FakeDuets
) -> None:
    session = make_session(tmp_path)
    first, second = run_trial(session, 0), run_trial(session, 1)
    seeds = [int(call["seed"]) for call in bench.calls]
    assert len(set(seeds)) == len(seeds)
    assert (first.seed, second.seed) == (session.seed_of(0), session.seed_of(1))
    # Of the screen's two runs: gpulift-bench counts from the seed on which side prepares first.
    screen = [(int(call["launches"]), int(call["seed"]) % 4) for call in bench.calls[:2]]
    assert screen == [(2, 0), (2, 2)]


def test_a_screen_of_rows_that_vary_goes_on(tmp_path: Path, bench: FakeDuets) -> None:
    bench.noise = 0.03
    trial = run_trial(make_session(tmp_path), 0)
    assert [call["launches"] for call in bench.calls[:4]] == ["2", "2", "4", "8"]
    assert {len(row.first) for row in trial.rows} == {16}


def test_what_a_suite_flags_is_confirmed_on_fresh_launches(
    tmp_path: Path, bench: FakeDuets
) -> None:
    bench.bias = {ROWS[0].id: 0.01}
    trial = run_trial(make_session(tmp_path), 0)
    assert [call["launches"] for call in bench.calls] == ["2", "2", "8"]
    assert [len(row.second) for row in trial.rows] == [8, 0, 0]
    assert trial.verdict(trial.rows[0]).verdict == "regressed"
    assert len(set(trial.rows[0].first) | set(trial.rows[0].second)) == 12


def test_later_looks_add_to_the_earlier_ones(tmp_path: Path, bench: FakeDuets) -> None:
    bench.bias = {ROWS[0].id: 0.0045}
    bench.noise = 2e-3
    for number in range(40):
        trial = run_trial(make_session(tmp_path), 2 * number)
        if len(trial.rows[0].second) == 32:
            break
    assert [call["launches"] for call in bench.calls][-3:] == ["8", "8", "16"]
    assert trial.rows[0].outcome == "ok"


def test_planted_slow_downs_are_found_and_verified(tmp_path: Path, bench: FakeDuets) -> None:
    session = make_session(tmp_path)
    trial = run_trial(session, 1)
    parts = plant(ROWS, session.seed_of(1))
    sizes = {row.id: part.size for part in parts for row in part.rows}
    assert {row.row: row.size for row in trial.rows} == sizes
    assert trial.schedule_sha256 == schedule_hash(sizes)
    assert {float(call["plant"]) for call in bench.calls} == {part.size for part in parts}
    for row in trial.rows:
        assert row.planted == pytest.approx([1.02 * row.size] * row.launches, abs=1e-6)
        expected = "regressed" if row.size >= 0.005 else "equivalent"
        assert trial.verdict(row).verdict == expected


def test_a_row_says_what_bounds_it(tmp_path: Path, bench: FakeDuets) -> None:
    trial = run_trial(make_session(tmp_path), 0)
    assert [row.on_gpu for row in trial.rows] == [True, True, False]


def test_a_crash_is_an_error_of_that_row_in_that_trial(tmp_path: Path, bench: FakeDuets) -> None:
    bench.broken = {ROWS[1].id: ("error", "ended by SIGSEGV")}
    trial = run_trial(make_session(tmp_path), 0)
    assert [row.outcome for row in trial.rows] == ["ok", "error", "ok"]
    assert trial.cases == 2
    assert "ended by SIGSEGV" in issue([trial]).errors[0].reason
    assert [arm for _, _, arm in rows_in(Path(bench.calls[1]["rows"]))] == ["copy", "plain"]


def test_a_crash_in_the_second_stage_is_an_error_too(tmp_path: Path, bench: FakeDuets) -> None:
    bench.bias = {ROWS[0].id: 0.01}

    def crash(number: int) -> None:
        bench.broken = {ROWS[0].id: ("error", "ended by SIGBUS")} if number == 3 else {}

    bench.on_call = crash
    trial = run_trial(make_session(tmp_path), 0)
    assert trial.rows[0].outcome == "error"
    assert issue([trial]).aa.alarms == 0


def test_skipped_rows_take_no_part(tmp_path: Path, bench: FakeDuets) -> None:
    bench.broken = {ROWS[1].id: ("skipped", "too little memory")}
    trial = run_trial(make_session(tmp_path), 0)
    assert trial.rows[1].outcome == "skipped"
    assert trial.cases == 2


def test_every_screen_of_a_planted_trial_ends_before_any_confirmation(
    tmp_path: Path, bench: FakeDuets
) -> None:
    """Else those with much to confirm would be broken off in a later screen."""
    bench.noise = 0.01
    trial = run_trial(make_session(tmp_path), 1)
    stages = [Path(call["records"]).parent.name for call in bench.calls]
    assert stages == sorted(stages)
    assert any(row.second for row in trial.rows)
    assert max(len(row.first) for row in trial.rows) > 4


def test_later_trials_recall_what_the_first_launches_searched(
    tmp_path: Path, bench: FakeDuets
) -> None:
    measure(make_session(tmp_path), 3)
    first = tmp_path / "trial-0000" / "aa" / "stage1" / "launch-0000"
    assert "recall" not in bench.calls[0]
    assert {call["recall"] for call in bench.calls[1:]} == {str(first)}


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        (130, 130, "interrupted: the same call with --out"),
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
    session = make_session(tmp_path)
    with pytest.raises(GpuliftError, match=words) as refused:
        measure(session, 3)
    assert refused.value.exit_code == expected
    assert str(tmp_path) in str(refused.value)
    assert [trial.kind for trial in finished_trials(session)] == [AA]


def test_an_interrupted_session_is_gone_on_with(tmp_path: Path, bench: FakeDuets) -> None:
    bench.exit_codes = {4: 130}
    with pytest.raises(GpuliftError):
        measure(make_session(tmp_path), 3)
    first = finished_trials(make_session(tmp_path))
    bench.exit_codes = {}
    trials = measure(make_session(tmp_path), 3)
    assert trials[: len(first)] == first
    assert [one.number for one in trials[1:3]] == [1, 2]
    assert trials[1].kind == PLANTED


def test_a_trial_that_was_broken_off_ends_as_if_it_had_not_been(
    tmp_path: Path, bench: FakeDuets
) -> None:
    """Else those that take long, because there is something to confirm, would be left out."""
    bench.bias = {ROWS[0].id: 0.01}
    (whole,) = measure(make_session(tmp_path / "whole"), 1)
    bench.exit_codes = {len(bench.calls) + 3: 130}  # its confirmation
    with pytest.raises(GpuliftError, match="goes on"):
        measure(make_session(tmp_path / "cut"), 1)
    bench.exit_codes = {}
    (trial,) = measure(make_session(tmp_path / "cut"), 1)
    assert trial.rows == whole.rows
    seeds = [call["seed"] for call in bench.calls]
    assert seeds == seeds[:3] * 3, "records of the same launches, which gpulift-bench goes on with"


def test_a_card_that_changes_in_the_midst_of_a_trial_is_refused(
    tmp_path: Path, bench: FakeDuets
) -> None:
    other = {**bench.context, "gpu": {**bench.context["gpu"], "card": "ffffffff"}}

    def change(call: int) -> None:
        if call == 2:
            bench.context = other

    bench.on_call = change
    with pytest.raises(GpuliftError, match=r"gpu\.card changed in the midst of the tr") as refused:
        measure(make_session(tmp_path), 3)
    assert refused.value.exit_code == 4
    assert not (tmp_path / TRIALS_FILE).exists()


def test_a_cut_line_is_dropped_with_a_warning_and_not_appended_to(
    tmp_path: Path, bench: FakeDuets, capfd: pytest.CaptureFixture[str]
) -> None:
    session = make_session(tmp_path)
    measure(session, 1)
    file = tmp_path / TRIALS_FILE
    whole = file.read_text()
    file.write_text(whole + whole[:50])
    assert len(finished_trials(session)) == 1
    assert "cut off" in capfd.readouterr().err
    assert file.read_text() == whole


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": "nvidia-b200"}, "of another machine"),
        ({"commit": "fffffff"}, "of another build"),
        ({"build": "0123456789ab"}, "of another build"),
        ({"decision_method": "0"}, "of another decision method"),
        ({}, "of another choice of rows"),
    ],
)
def test_a_folder_of_another_session_is_refused(
    tmp_path: Path, bench: FakeDuets, change: dict[str, object], words: str
) -> None:
    other = replace(unchanged(0), **change)  # type: ignore[arg-type]
    (tmp_path / TRIALS_FILE).write_text(line_of(other) + "\n")
    with pytest.raises(GpuliftError, match=words) as refused:
        measure(make_session(tmp_path), 3)
    assert refused.value.exit_code == 4
    assert not bench.calls


def test_nothing_recorded_is_said(
    tmp_path: Path, bench: FakeDuets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "measure", lambda bench, flags: 77)
    with pytest.raises(GpuliftError, match="nothing was recorded") as refused:
        measure(make_session(tmp_path), 3)
    assert refused.value.exit_code == 77


def test_a_planted_note_that_is_no_number_is_refused(tmp_path: Path, bench: FakeDuets) -> None:
    bench.note = "much"
    with pytest.raises(GpuliftError, match=r"jsonl:1: notes.planted must be a number"):
        run_trial(make_session(tmp_path), 1)


def test_a_plant_is_fixed_by_its_seed_and_uses_every_size() -> None:
    rows = [Row("t", "", f"arm{i}") for i in range(60)]
    parts = plant(rows, 7)
    assert parts == plant(rows, 7) != plant(rows, 8)
    assert [part.size for part in parts] == list(SIZES)
    assert [len(part.rows) for part in parts] == [10] * 5
    assert len({row for part in parts for row in part.rows}) == 50


def test_a_plant_of_one_row_is_never_empty() -> None:
    assert all(plant(ROWS[:1], seed) for seed in range(50))


def test_trials_of_another_seed_are_not_gone_on_with(tmp_path: Path, bench: FakeDuets) -> None:
    measure(make_session(tmp_path), 1)
    with pytest.raises(GpuliftError, match="of another seed"):
        measure(replace(make_session(tmp_path), seed=2), 1)


def test_kinds_take_turns_until_all_trials_are_there(tmp_path: Path, bench: FakeDuets) -> None:
    trials = measure(make_session(tmp_path), 5)
    assert [trial.kind for trial in trials] == [AA, PLANTED, AA, PLANTED, AA]
    calls = len(bench.calls)
    assert measure(make_session(tmp_path), 5) == trials
    assert len(bench.calls) == calls


# --- As it is called ---

CERTIFICATE = Path("results/certificates/nvidia-h200.json")
TRIALS = CERTIFICATE.with_suffix("")


@pytest.fixture
def called(bench: FakeDuets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDuets:
    """In a checkout of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    monkeypatch.setattr(machine, "find_bench", lambda: tmp_path / "build" / "gpulift-bench")
    return bench


def run(*arguments: str) -> str:
    """What it prints."""
    app = typer.Typer()
    app.command()(certify)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_session_ends_with_trials_and_a_certificate(called: FakeDuets) -> None:
    said = run("--trials", "3", "--out", "raw")
    (file,) = TRIALS.glob("*.trials")
    trials, _ = read_trials(file)
    made = read_certificate(CERTIFICATE)
    assert {note.id for note in made.trials} == {trial.id for trial in trials}
    assert made.aa.suites == 2
    assert "0 of 2 A/A suites raised an alarm" in said


def test_a_session_that_is_gone_on_with_replaces_its_trials(called: FakeDuets) -> None:
    run("--trials", "1", "--out", "raw")
    run("--trials", "3", "--out", "raw")
    (file,) = TRIALS.glob("*.trials")
    assert len(read_trials(file)[0]) == 3


def test_sessions_join_in_one_certificate(called: FakeDuets) -> None:
    run("--trials", "1", "--out", "one", "--seed", "1")
    run("--trials", "1", "--out", "two", "--seed", "2")
    assert len(list(TRIALS.glob("*.trials"))) == 2
    assert read_certificate(CERTIFICATE).aa.suites == 2


def test_it_is_reissued_from_the_trials_of_its_method(called: FakeDuets) -> None:
    run("--trials", "2", "--out", "raw")
    content = CERTIFICATE.read_bytes()
    CERTIFICATE.unlink()
    other = replace(unchanged(0), decision_method="0")
    dirty = replace(unchanged(1), dirty=True)
    (TRIALS / "x.trials").write_text(f"{line_of(other)}\n{line_of(dirty)}\n")
    assert "2 trials are left out" in run("--reissue", "nvidia-h200")
    assert CERTIFICATE.read_bytes() == content
    (TRIALS / "x.trials").unlink()
    for file in TRIALS.glob("*.trials"):
        file.unlink()
    with pytest.raises(GpuliftError, match="no finished trial"):
        run("--reissue", "nvidia-h200")


def test_only_selected_quick_rows_are_measured(called: FakeDuets) -> None:
    run("--trials", "1", "--out", "raw", "launch/")
    assert {row for row, _, _ in rows_in(Path(called.calls[0]["rows"]))} == {"launch/empty"}


def test_a_machine_without_a_gpu_is_told_what_cannot_be_measured(called: FakeDuets) -> None:
    called.context = sample.CPU_CONTEXT
    context = read_context(called.context, "fake")
    with pytest.raises(GpuliftError, match="here: no NVIDIA driver on this machine") as refused:
        measurable_rows(called.catalogue(Path()), context, None)
    assert refused.value.exit_code == 77


def test_the_committed_certificate_is_what_its_trials_give() -> None:
    folder = CHECKOUT / "results" / "certificates"
    committed = read_certificate(folder / "nvidia-h200.json")
    trials = [one for file in folder.glob("nvidia-h200/*") for one in read_trials(file)[0]]
    own = [one for one in trials if one.decision_method == committed.method]
    assert replace(issue(own), schema=committed.schema) == committed
