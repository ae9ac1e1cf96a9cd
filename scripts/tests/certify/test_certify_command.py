"""`gpulift certify` as a user calls it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from gpulift.certify import issue as certificates
from gpulift.certify.issue import line_of
from gpulift.commands import certify as certify_command
from gpulift.commands.certify import certify
from gpulift.engine import machine
from gpulift.gate.certificate import read_certificate
from gpulift.ground.errors import INTERRUPTED, NOT_COMPARABLE, USAGE, GpuliftError
from gpulift.records.model import Context
from gpulift.records.parse import read_context
from tests import sample
from tests.fake_duets import ROWS, FakeDuets
from tests.fake_gate import make_build, technique
from tests.trials_made import unchanged

pytestmark = pytest.mark.world

CERTIFICATE = Path("results/certificates/nvidia-h200.json")
TRIALS = Path("results/certificates/nvidia-h200")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDuets:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    monkeypatch.setattr(machine, "find_bench", lambda: tmp_path / "build" / "gpulift-bench")
    monkeypatch.setattr(certificates, "REPLAYS", 50)
    fake = FakeDuets()
    fake.install(monkeypatch)
    return fake


def run(*arguments: str) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(certify)
    app(args=list(arguments), standalone_mode=False)


def be_dirty(bench: FakeDuets) -> None:
    """Built from uncommitted changes, so that the build itself says which it is."""
    bench.context = sample.gpu_context(build={"dirty": True})
    Path("build").mkdir()
    Path("build/gpulift-bench").touch()


def test_a_session_ends_with_certificate_trials_and_tables(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--time", "3m")
    made = read_certificate(CERTIFICATE)
    assert made.citable
    assert made.aa.suites >= 2
    assert made.detection
    (kept,) = TRIALS.iterdir()
    assert kept.name.endswith("-abc1234.trials")
    assert len(kept.read_text().splitlines()) == len(made.trials)
    said = capsys.readouterr()
    for words in ("Unchanged code", "Planted slow-downs", "Rules on the same launches"):
        assert words in said.out
    assert f"0 of {made.aa.suites} A/A suites raised an alarm" in said.out
    assert "s are left" in said.err


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_written_is_named(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    run("--time", "20s", "--out", "session", *(["--json"] if as_json else []))
    (kept,) = TRIALS.iterdir()
    said = capsys.readouterr()
    lines = (said.err if as_json else said.out).splitlines()
    start = "gpulift: " if as_json else ""
    for written in (
        "raw records: session",
        f"trials: {kept.absolute()}",
        f"certificate: {CERTIFICATE.absolute()}",
    ):
        assert f"{start}{written}" in lines


def test_a_certificate_is_reissued_from_its_trials(bench: FakeDuets) -> None:
    run("--time", "3m")
    before = CERTIFICATE.read_bytes()
    CERTIFICATE.unlink()
    calls = len(bench.calls)
    run("--reissue", *map(str, TRIALS.iterdir()))
    assert CERTIFICATE.read_bytes() == before
    assert len(bench.calls) == calls


def test_a_reissue_that_would_forget_trials_is_refused(bench: FakeDuets) -> None:
    run("--time", "20s")
    run("--time", "20s", "--seed", "2")
    before = CERTIFICATE.read_bytes()
    second, first = sorted(TRIALS.iterdir())
    with pytest.raises(GpuliftError, match=rf"forget 1 trials in .*: {second.name}") as refused:
        run("--reissue", str(first))
    assert refused.value.exit_code == USAGE
    assert CERTIFICATE.read_bytes() == before
    second.unlink()
    run("--reissue", str(first))
    assert read_certificate(CERTIFICATE).aa.suites == 1


def test_two_sessions_of_a_day_keep_their_trials_apart(bench: FakeDuets) -> None:
    run("--time", "20s")
    run("--time", "20s", "--seed", "2")
    second, first = sorted(file.name for file in TRIALS.iterdir())
    assert second == first.replace(".trials", "-2.trials")
    assert len(list(Path(".gate/certify").iterdir())) == 2


def test_sessions_join_in_one_certificate(bench: FakeDuets) -> None:
    run("--time", "20s")
    run("--time", "20s", "--seed", "2")
    assert read_certificate(CERTIFICATE).aa.suites == 2


def test_trials_of_another_arm_time_are_left_out_and_counted(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--time", "20s", "--arm-time", "0.1")
    run("--time", "20s")
    assert read_certificate(CERTIFICATE).aa.suites == 1
    assert (
        "1 of 1 other trials are left out: of another method or arm time" in capsys.readouterr().err
    )


def test_a_dirty_session_leaves_a_citable_certificate_alone(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--time", "20s")
    before = CERTIFICATE.read_bytes()
    be_dirty(bench)
    run("--time", "20s")
    assert CERTIFICATE.read_bytes() == before
    assert "is citable and stays as it is" in capsys.readouterr().err


def test_a_certificate_that_no_gate_can_read_is_replaced(bench: FakeDuets) -> None:
    run("--time", "20s")
    old = {**json.loads(CERTIFICATE.read_text()), "schema": "1.0"}
    CERTIFICATE.write_text(json.dumps(old))
    be_dirty(bench)
    run("--time", "20s")
    assert not read_certificate(CERTIFICATE).citable


def test_a_session_that_is_gone_on_with_replaces_its_trials(bench: FakeDuets) -> None:
    run("--time", "20s", "--out", "session")
    run("--time", "60s", "--out", "session")
    (kept,) = TRIALS.iterdir()
    assert len(kept.read_text().splitlines()) > 1
    assert kept.read_text() == Path("session/trials.jsonl").read_text()


def test_trials_of_two_cards_make_one_certificate(bench: FakeDuets) -> None:
    for card in ("aaaa", "bbbb"):
        one = replace(unchanged(0), card=card)
        Path(card).write_text(line_of(one) + "\n")
    run("--reissue", "aaaa", "bbbb")
    assert read_certificate(CERTIFICATE).cards == ("aaaa", "bbbb")
    assert read_certificate(CERTIFICATE).aa.suites == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [({"machine": "nvidia-b200"}, "several machines"), ({"arm_time_s": 0.5}, "several arm times")],
)
def test_trials_that_do_not_go_together_write_nothing(
    bench: FakeDuets, change: dict[str, object], words: str
) -> None:
    Path("a").write_text(line_of(unchanged(0)) + "\n")
    Path("b").write_text(line_of(replace(unchanged(1), **change)) + "\n")  # type: ignore[arg-type]
    with pytest.raises(GpuliftError, match=words) as refused:
        run("--reissue", "a", "b")
    assert refused.value.exit_code == 4
    assert not CERTIFICATE.exists()


def test_trials_of_another_decision_method_are_left_out_and_counted(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [replace(unchanged(number), decision_method="0") for number in (1, 2)]
    Path("a").write_text(line_of(unchanged(0)) + "\n" + line_of(others[0]) + "\n")
    Path("b").write_text(line_of(others[1]) + "\n")
    run("--reissue", "a", "b")
    assert [one.id for one in read_certificate(CERTIFICATE).trials] == [unchanged(0).id]
    said = capsys.readouterr().err
    assert said.count("warning") == 1
    assert "warning: 2 of 3 trials are left out: of decision method 0, and this is" in said


def test_trials_of_another_decision_method_alone_are_refused(bench: FakeDuets) -> None:
    Path("a").write_text(line_of(replace(unchanged(0), decision_method="0")) + "\n")
    with pytest.raises(GpuliftError, match="trials of decision method 0") as refused:
        run("--reissue", "a")
    assert refused.value.exit_code == 4
    assert not CERTIFICATE.exists()


def test_a_cut_last_trial_is_said_when_reissuing(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    line = line_of(unchanged(0)) + "\n"
    Path("a").write_text(line + line[:70])
    run("--reissue", "a")
    assert "cut off; it was dropped" in capsys.readouterr().err


def test_a_dirty_build_is_not_citable(
    bench: FakeDuets, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_dirty(bench)
    run("--time", "20s")
    made = read_certificate(CERTIFICATE)
    assert (made.citable, made.caveat) == (False, "built from uncommitted changes")
    written = f"certificate: {CERTIFICATE.absolute()}, not citable: built from uncommitted changes"
    assert written in capsys.readouterr().out.splitlines()
    (kept,) = TRIALS.iterdir()
    assert kept.name.endswith("-abc1234-dirty.trials")


def test_a_machine_without_a_gpu_is_told_what_cannot_be_measured(bench: FakeDuets) -> None:
    bench.context = sample.CPU_CONTEXT
    with pytest.raises(GpuliftError, match="no NVIDIA driver on this machine") as refused:
        run()
    assert refused.value.exit_code == 77
    assert not bench.calls


def test_what_is_left_out_for_want_of_a_gpu_is_said_with_its_reason_and_the_least_time(
    bench: FakeDuets, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.context = sample.CPU_CONTEXT

    def one_of_host(path: Path, more_modules: Sequence[Path] = ()) -> list[machine.TechniqueInfo]:
        first, *others = bench.catalogue(path)
        return [replace(first, gpus=0), *others]

    monkeypatch.setattr(machine, "catalogue", one_of_host)
    run("--time", "20s", "--sizes", "none")
    first, second = capsys.readouterr().err.splitlines()[:2]
    assert re.search(r"\d of 3 rows are left out: no NVIDIA driver on this machine", first)
    assert re.search(r"\d rows for 20 s, the first look at all in \d s at best", second)


def test_only_the_sizes_that_are_asked_for_are_planted(bench: FakeDuets) -> None:
    run("--time", "3m", "--sizes", "2,0.5")
    assert {one.size for one in read_certificate(CERTIFICATE).detection} == {0.005, 0.02}


def test_without_sizes_there_are_suites_alone(bench: FakeDuets) -> None:
    run("--time", "3m", "--sizes", "none")
    made = read_certificate(CERTIFICATE)
    assert made.aa.suites >= 10
    assert not made.detection


def test_unchanged_code_can_be_left_out(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--time", "3m", "--sizes", "2", "--no-unchanged")
    assert "no suite of unchanged code was measured" in capsys.readouterr().out
    made = read_certificate(CERTIFICATE)
    assert made.aa.suites == 0
    assert sum(one.trials for one in made.detection) >= 3


def test_only_selected_quick_rows_are_measured(bench: FakeDuets) -> None:
    run("--time", "20s", "launch")
    assert read_certificate(CERTIFICATE).rows == (ROWS[2].id,)


def test_floors_misses_alarms_and_errors_are_named(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.blind = frozenset({ROWS[0].id})
    bench.bias = {ROWS[2].id: 0.01}
    bench.broken = {ROWS[1].id: ("error", "ended by SIGSEGV")}
    run("--time", "10m")
    said = capsys.readouterr().out
    assert f"floor {ROWS[2].id}: 1" in said
    assert f"alarm {ROWS[2].id}: regressed" in said
    assert f"in {ROWS[0].id}: equivalent" in said
    assert f"not measured {ROWS[1].id}: error: ended by SIGSEGV" in said


def test_rows_that_vary_too_much_are_named(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.noise = 0.05
    run("--sizes", "none", "--time", "10m", ROWS[0].id)
    said = capsys.readouterr().out
    assert "unsteady rows, which most of their trials left inconclusive: 1; a gate looks" in said
    assert f"inconclusive {ROWS[0].id}: " in said


def test_json_is_the_certificate_and_its_unsteady_rows(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.noise = 0.05
    run("--time", "10m", "--sizes", "none", "--json", "launch")
    told = json.loads(capsys.readouterr().out)
    (unsteady,) = told.pop("unsteady")
    assert told == json.loads(CERTIFICATE.read_text())
    assert unsteady["row"] == ROWS[2].id
    assert unsteady["trials"] == told["aa"]["suites"] > 0
    assert unsteady["inconclusive"] > unsteady["trials"] / 2


def test_too_little_time_leaves_no_certificate(bench: FakeDuets) -> None:
    with pytest.raises(GpuliftError, match="no trial ended in time") as refused:
        run("--time", "1s")
    assert refused.value.exit_code == 2
    assert not CERTIFICATE.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--time", "0s"), "--time 0s: give a time above 0"),
        (("--time", "soon"), "such as 90s, 20m or 2h"),
        (("--arm-time", "0"), "--arm-time must be more than 0"),
        (("--sizes", "0.5,3"), "--sizes 0.5,3: 3 is none of 0.2,0.5,1,2,5"),
        (("--sizes", ""), "an empty size is none of"),
        (("--sizes", "none", "--no-unchanged"), "leaves no trial"),
        (("a", "b"), "give one filter"),
        (("nothing_like_it",), "no case matches the filter 'nothing_like_it'"),
        (("--reissue",), "needs files"),
        (("--reissue", "none"), "cannot be read"),
        (("--reissue", "a", "--out", "b", "--arm-time", "1"), "leave out --out, --arm-time"),
        (("--reissue", "a", "--no-unchanged"), "leave out --unchanged"),
        (("--reissue", "letter"), "not a line of JSON: files of trials end with .trials"),
        (("--out", "taken"), "holds something else"),
        (("--out", "file"), "cannot be written"),
    ],
)
def test_wrong_use_is_one_line(bench: FakeDuets, arguments: tuple[str, ...], words: str) -> None:
    Path("taken").mkdir()
    Path("taken/letter.txt").touch()
    Path("file").touch()
    Path("letter").write_text("Dear reader\n")
    with pytest.raises(GpuliftError, match=words) as refused:
        run(*arguments)
    assert refused.value.exit_code == 2
    assert not bench.calls


def make_two_builds() -> None:
    for name in ("build", "second"):
        make_build(Path(name), [technique("ceiling/memory")])
        Path(name, "modules", "ceiling.memory.so").write_text(name)


def test_two_builds_of_one_commit_meet(
    bench: FakeDuets, capsys: pytest.CaptureFixture[str]
) -> None:
    make_two_builds()
    run("--time", "3m", "--base", "second")
    sides = {(call["head"], call["base"]) for call in bench.calls}
    (met,) = {(Path(head).parent.name, Path(base).parent.name) for head, base in sides}
    assert met == ("build", "second")
    (kept,) = TRIALS.iterdir()
    (builds,) = {json.loads(line)["build"] for line in kept.read_text().splitlines()}
    head, base = builds.split("+")
    assert head != base
    assert f"meets the one in {Path('second').absolute()}" in capsys.readouterr().err
    assert read_certificate(CERTIFICATE).citable


def test_a_trial_of_two_builds_goes_on_with_the_same_two(bench: FakeDuets) -> None:
    make_two_builds()
    bench.exit_codes = {2: INTERRUPTED}
    with pytest.raises(GpuliftError, match="interrupted"):
        run("--time", "3m", "--base", "second", "--out", "session")
    with pytest.raises(GpuliftError, match="was begun with other builds") as refused:
        run("--time", "3m", "--out", "session")
    assert refused.value.exit_code == NOT_COMPARABLE
    run("--time", "3m", "--base", "second", "--out", "session")
    with pytest.raises(GpuliftError, match="is of another build"):
        run("--time", "6m", "--out", "session")


@pytest.mark.parametrize(
    ("named", "change", "words", "code"),
    [
        ("build", {}, "is this build", USAGE),
        ("second", {"commit": "fffffff0"}, "are not the same code", NOT_COMPARABLE),
        ("second", {"dirty": True}, "are not the same code", NOT_COMPARABLE),
        ("second", {"compiler": "Clang 18"}, "build.compiler", NOT_COMPARABLE),
    ],
)
def test_other_code_is_no_second_build(
    bench: FakeDuets,
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    change: dict[str, object],
    words: str,
    code: int,
) -> None:
    make_two_builds()
    changed = copy.deepcopy(bench.context)
    changed["build"] |= change

    def describe(program: Path, gpu: int | None = None) -> Context:
        here = changed if program.parent.name == "second" else bench.context
        return read_context(here, "fake")

    monkeypatch.setattr(machine, "describe", describe)
    with pytest.raises(GpuliftError, match=words) as refused:
        run("--time", "3m", "--base", named)
    assert refused.value.exit_code == code
    assert not bench.calls


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dirty": True}, "built from uncommitted changes, so"),
        ({"commit": "unknown"}, "built from an unknown commit, so"),
        ({"flags": "-O1"}, r"built with foreign flags \(C\+\+: -O1\), so"),
    ],
)
def test_a_build_of_no_known_code_meets_no_second_one(
    bench: FakeDuets, change: dict[str, object], why: str
) -> None:
    make_two_builds()
    bench.context = copy.deepcopy(bench.context)
    bench.context["build"] |= change
    with pytest.raises(GpuliftError, match=why) as refused:
        run("--time", "3m", "--base", "second")
    assert refused.value.exit_code == NOT_COMPARABLE


def test_another_commit_is_refused_before_it_is_built(
    bench: FakeDuets, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_two_builds()
    monkeypatch.setattr(certify_command, "resolve", lambda reference, checkout: "f" * 40)
    monkeypatch.setattr(certify_command, "find_build", None)
    with pytest.raises(GpuliftError, match="--base HEAD~1: is commit fffffff, and this") as refused:
        run("--time", "3m", "--base", "HEAD~1")
    assert refused.value.exit_code == NOT_COMPARABLE


def test_rows_that_the_second_build_lacks_are_refused(
    bench: FakeDuets, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_two_builds()
    own = bench.catalogue(Path("build"))
    monkeypatch.setattr(
        machine,
        "catalogue",
        lambda program, more_modules=(): own if program.parent.name == "build" else own[1:],
    )
    with pytest.raises(GpuliftError, match="only in the head: ceiling/memory") as refused:
        run("--time", "3m", "--base", "second")
    assert refused.value.exit_code == NOT_COMPARABLE
