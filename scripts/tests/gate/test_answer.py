"""What a gate answers: its rows, the steps to them, what they rest on; from evidence by hand."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.gate import answer as answers
from gpulift.gate.answer import answer, family
from gpulift.gate.evidence import (
    BASE,
    COMMANDS,
    HEAD,
    Evidence,
    Launch,
    Row,
    Series,
    Setup,
    batch_folder,
    read_evidence,
    save,
    stage_folder,
)
from gpulift.gate.judge import Control, GateResult, judge
from gpulift.gate.metrics import Reading
from gpulift.gate.pairs import Pair, PairedLaunch, Run, write_launch
from gpulift.records.throttle import Throttle
from gpulift.verdicts import explain, table
from gpulift.verdicts.explain import Attribution, Measured
from gpulift.verdicts.row import FAILED, OPEN, PASSED, Table
from proof.trials import read_trials
from tests.conftest import CHECKOUT
from tests.gate.test_gate import CLEAN, NOISY, SLOWER, evidence, launches, setup
from tests.junit_rules import complaints

TRIALS = CHECKOUT / "results" / "certificates" / "nvidia-h200"
ROWS = [Row("precision/matmul", f"n:{n}", "bf16") for n in range(6)]
FASTER = launches([-value for value in SLOWER])
BROKE = Launch(None, "error", "50 % done")
RESULT = judge(
    evidence(
        {
            ROWS[0]: launches(CLEAN),
            ROWS[1]: launches(NOISY),
            ROWS[2]: launches(SLOWER),
            ROWS[3]: FASTER,
            ROWS[4]: [Launch(None, "skipped", "out of memory")] * 4,
            ROWS[5]: [BROKE],
        },
        {ROWS[2]: launches(SLOWER * 2), ROWS[3]: FASTER * 2},
    )
)


def of(result: GateResult) -> Table:
    return answer(result, Path("no-records"))


def rows_json(result: GateResult) -> list[dict[str, Any]]:
    """By their own order, as rows of JSON."""
    rows: list[dict[str, Any]] = json.loads(table.FORMS["json"](of(result)))["rows"]
    return sorted(rows, key=lambda row: str(row["case"]))


def test_rows_are_worst_first_and_equivalent_or_skipped_ones_are_not_notable() -> None:
    made = of(RESULT)
    assert [(row.verdict, row.notable) for row in made.rows] == [
        ("error", True),
        ("regressed", True),
        ("inconclusive", True),
        ("improved", True),
        ("equivalent", False),
        ("skipped", False),
    ]
    assert (made.exit_code, made.data["counts"]["regressed"]) == (RESULT.exit_code, 1)
    usual = replace(RESULT, setup=replace(RESULT.setup, unsteady=(ROWS[1],)))
    assert not next(row for row in of(usual).rows if row.verdict == "inconclusive").notable
    assert of(usual).notes[0].startswith("1 inconclusive as in most of their trials")


def test_of_one_verdict_what_got_slower_most_is_first() -> None:
    slower = [launches([times * value for value in SLOWER]) for times in (1, 3, 2)]
    held = dict(zip(ROWS, slower, strict=False))
    made = of(judge(evidence(held, {row: found * 2 for row, found in held.items()})))
    assert {row.verdict for row in made.rows} == {"regressed"}
    assert [row.subject for row in made.rows] == [ROWS[1].id, ROWS[2].id, ROWS[0].id]


@pytest.mark.parametrize(
    ("control", "kind"),
    [
        (Control("null", True, "is clean"), PASSED),
        (Control("null", False, "alarm"), FAILED),
        (Control("null", False, "the budget ended", unfinished=True), OPEN),
    ],
)
def test_a_control_that_is_not_finished_is_open(control: Control, kind: str) -> None:
    (found,) = of(replace(RESULT, controls=(control,))).controls
    assert (found.kind, found.reason) == (kind, control.said)


def test_what_a_gate_rests_on_is_its_error_budget_where_it_compared_anything() -> None:
    none = judge(Evidence(replace(setup(ROWS[0]), unmeasurable={ROWS[0].id: "no GPU"})))
    assert of(none).conditions[0].endswith(f"nothing was compared; {none.setup.certificate}")
    bare = replace(RESULT, setup=replace(RESULT.setup, certificate=""))
    assert of(bare).conditions[0].endswith(family(RESULT.plan))


BUDGET = "Family: family of 1: planned chance of a false regression in the whole gate 0.5 %"
NO_CHANGE = "Equivalence: counts as no change: +-1 %"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, [BUDGET, "Gate: screen: least change that is called one: 0.25 %", NO_CHANGE]),
        (
            {"floors": {ROWS[0].id: 0.003}, "unsteady": (ROWS[0],)},
            [
                BUDGET,
                "Gate: screen: least change that is called one: 0.3 % (its floor in the certificate"
                " is 0.3 %)",
                "Gate: screen: unsteady in the certificate: looked at once",
                NO_CHANGE,
            ],
        ),
        ({"unmeasurable": {ROWS[0].id: "no GPU"}}, []),
    ],
)
def test_steps_say_what_figures_were_held_against(changed: dict[str, Any], said: list[str]) -> None:
    series = Series({ROWS[0]: launches(CLEAN)})
    (row,) = of(judge(Evidence(replace(setup(ROWS[0]), **changed), series))).rows
    steps = list(row.steps())
    first = next((i for i, line in enumerate(steps) if line.startswith("Family")), len(steps))
    last = next((i for i, line in enumerate(steps) if line.startswith("Paired")), len(steps))
    assert steps[first:last] == said


def test_json_says_of_a_row_what_it_rests_on_and_why_a_launch_has_no_value() -> None:
    floors = {ROWS[1].id: 0.003}
    rows = rows_json(replace(RESULT, setup=replace(RESULT.setup, floors=floors)))
    assert [row.get("floor") for row in rows[:3]] == [None, 0.003, None]
    assert rows[1]["base"] == rows[1]["head"] == []
    assert rows[0]["smallest_effect"] > 0.0025
    assert rows[2]["smallest_effect"] is None
    assert rows[4]["reason"] == "out of memory"
    assert [index for index, row in enumerate(rows) if "not_measured" in row] == [4, 5]
    assert [one["launch"] for one in rows[4]["not_measured"]] == [1, 2, 3, 4]
    assert rows[5]["launch_log_ratios"]["screen"] == [None]
    assert rows[5]["not_measured"] == [
        {"stage": "screen", "launch": 1, "outcome": "error", "reason": BROKE.reason}
    ]
    assert "screen launch 1: error: 50 % done" in "\n".join(of(RESULT).rows[0].steps())


def test_the_cause_of_a_change_is_in_json_and_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Measured("time of a step", "s", 2e-3, 3e-3, "2.00 ms in base, 3.00 ms in head (50 %)")
    why = Attribution((time,), Throttle(()), Throttle(("sw_power_cap",)), "the code: all of it")
    monkeypatch.setattr(answers, "_attribution", lambda one, records: why)
    assert rows_json(RESULT)[2]["attribution"] == {
        "cause": "the code: all of it",
        "measures": [
            {"name": "time of a step", "unit": "s", "base": 2e-3, "head": 3e-3, "ratio": 1.5}
        ],
        "throttle": {"base": [], "head": ["sw_power_cap"]},
    }
    assert list(of(RESULT).rows[1].steps())[-4:] == [
        "Attribution: time of a step: 2.00 ms in base, 3.00 ms in head (50 %)",
        "Attribution: throttle in base: none seen",
        "Attribution: throttle in head: sw_power_cap",
        "Attribution: the code: all of it",
    ]
    assert explain.attribution([], [], RESULT.rows[0].verdict) is None


@pytest.mark.parametrize("file", sorted(TRIALS.glob("2026-11-22-*.trials")), ids=lambda f: f.stem)
def test_junit_of_measured_trials(file: Path) -> None:
    """Each committed trial was a whole gate; all of its rows are in the file."""
    for trial in read_trials(file)[0]:
        rows = {row_of(one.row): one for one in trial.rows}
        first = {row: [Launch(value) for value in one.first] for row, one in rows.items()}
        second = {row: [Launch(value) for value in one.second] for row, one in rows.items()}
        made = of(judge(evidence(first, second)))
        assert not complaints(table.junit(made).encode())
        assert sorted(row.verdict for row in made.rows) == sorted(
            trial.verdict(one).verdict for one in trial.rows
        )


def row_of(id: str) -> Row:
    """The row of this name."""
    technique, name, *case, arm = id.split("/")
    return Row(f"{technique}/{name}", "/".join(case), arm)


# --- Of a command ---

UNEVEN, STEADY = (0.9, 1.1, 0.95, 1.08), (1.0, 1.0001, 0.9999, 1.0)


def judged(folder: Path, left: tuple[str, ...] = (), **more: Any) -> Table:
    """One row that varies, one that does not, one that broke and one that the head lacks."""
    rows = tuple(Row("x", "", name) for name in ("uneven", "rate", "broke", "gone"))
    made = Setup(
        "2", COMMANDS, "HEAD~1", "HEAD", "here", "", 1, rows, broken={"x/broke": "head: no memory"},
        lost={"x/gone": "only in the base"}, **more,
    )  # fmt: skip
    save(folder, made, {})
    for number, (uneven, steady) in enumerate(zip(UNEVEN, STEADY, strict=True)):
        before = {"uneven": Reading(1.0, "s"), "rate": Reading(2.0, "it/s", True)}
        head = {"uneven": Reading(uneven, "s"), "rate": Reading(2.0 / steady, "it/s", True)}
        launch = batch_folder(stage_folder(folder, "cases", 1), range(number, number + 1))
        pair = Pair((BASE, HEAD), Run(before, 0.5, left=left), Run(head, 0.5))
        write_launch(launch, PairedLaunch((pair,)))
    return answer(judge(read_evidence(folder)), folder)


def test_rows_of_a_command_have_both_numbers_and_their_ratio(tmp_path: Path) -> None:
    made = judged(tmp_path)
    said = list(table.lines(made, every=True))
    assert said[0].endswith("4 rows: 1 error, 2 inconclusive, 1 equivalent (within 1 %)")
    assert said[1] == "error        broke: head: no memory"
    assert said[2].startswith("inconclusive uneven: 1.00 s -> 1.00 s; head/base 1.0")
    assert "only changes of" in said[2]
    assert said[3] == "inconclusive gone: only in the base"
    assert said[4].startswith("equivalent   rate: 2 it/s -> 2 it/s; head/base 1.00000,")
    assert said[5] == "2 rows could not be told with 4 launches"
    assert said[6] == "1000 launches cannot tell 0.5 %: --threshold asks for less"
    more = judged(tmp_path / "more", least=0.05).notes[1]
    assert re.fullmatch(r"\d+ launches would tell 10 %: --budget \dm", more)
    rows = {row["arm"]: row for row in table.as_json(made)["rows"]}
    assert rows["uneven"]["medians"]["base"] == {"value": 1.0, "unit": "s", "higher": False}
    assert rows["rate"]["medians"]["head"]["value"] == pytest.approx(2.0, rel=1e-3)
    assert made.rows[-1].measured is not None
    assert made.rows[-1].measured.higher


def test_what_runs_left_and_a_first_run_that_took_long_are_said(tmp_path: Path) -> None:
    quiet = judged(tmp_path / "q", first_s={HEAD: 0.6}).notes
    assert not [line for line in quiet if "behind" in line or "first run" in line]
    loud = judged(tmp_path, ("sleep", "x\x1b"), first_s={BASE: 0.6, HEAD: 5.0}).notes
    assert "runs left 8 processes behind, as sleep, which were ended after each" in loud
    assert [line.partition(":")[0] for line in loud if "first run" in line] == [
        "the first run of the head took 10 times as long as later ones, which alone are judged"
    ]


def test_what_would_tell_what_could_not_be_told_and_what_numbers_mean(tmp_path: Path) -> None:
    def said(base: Reading, scatter: float) -> list[str]:
        folder = tmp_path / f"{base.unit} {scatter}"
        setup = Setup(
            "2", COMMANDS, "a", "b", "here", "", 1, (Row("x", "", base.unit),), least=0.01
        )
        save(folder, setup, {})
        for number in range(4):
            head = replace(base, value=base.value * (1 + scatter * (-1) ** number))
            runs = (Run({base.unit: one}, 20.0) for one in (base, head))
            launch = batch_folder(stage_folder(folder, "cases", 1), range(number, number + 1))
            write_launch(launch, PairedLaunch((Pair((BASE, HEAD), *runs),)))
        return list(table.lines(answer(judge(read_evidence(folder)), folder), every=True))

    shown = said(Reading(1.5, "CPU s"), 0.03)
    assert shown[1].startswith("inconclusive CPU s: 1.5 CPU s -> 1.499 CPU s; head/base 0.9995")
    assert shown[2].startswith("CPU seconds, not elapsed time: a change that only waits, ")
    assert shown[3] == "1 row could not be told with 4 launches"
    launches, _, minutes = shown[4].partition(" launches would tell 2 %: --budget ")
    assert minutes == f"{math.ceil((int(launches) + 24) * 40 / 60)}m"
    shown = said(Reading(6.4e9, "instructions"), 0.5)
    assert "6400 million instructions -> " in shown[1]
    assert shown[2].startswith("instructions of user code, not time: ")
    assert shown[4] == "1000 launches cannot tell 2 %: --threshold asks for less"
    shown = said(Reading(1.0, "wall"), 0.5)
    assert (
        "--metric cpu may tell it: other processes disturb CPU seconds less than the clock" in shown
    )


@pytest.mark.parametrize(
    ("fresh", "controls", "told"),
    [(0, 0, (12, 24)), (0, 40, (12, 40)), (8, 24, (36, 24))],
)
def test_what_lacks_its_confirmation_alone_names_the_time_of_that(
    tmp_path: Path, fresh: int, controls: int, told: tuple[int, int]
) -> None:
    """Of a slow-down by a tenth that the screen flagged: what would see a change of 2 % is less."""
    setup = Setup("2", COMMANDS, "a", "b", "here", "", 1, (Row("x", "", "s"),), least=0.01)
    save(tmp_path, setup, {})
    series = (("cases", 1, 4, 0.001), ("cases", 2, fresh, 0.12), ("null", 1, controls, 0.0))
    for name, stage, count, scatter in series:
        for number in range(count):
            head = Reading(1.1 + scatter * (-1) ** number, "s")
            runs = (Run({"s": one}, 20.0) for one in (Reading(1.0, "s"), head))
            folder = batch_folder(stage_folder(tmp_path, name, stage), range(number, number + 1))
            write_launch(folder, PairedLaunch((Pair((BASE, HEAD), *runs),)))
    (_, more, *_) = answer(judge(read_evidence(tmp_path)), tmp_path).notes
    minutes = math.ceil(sum(told) * 40 / 60)
    assert re.fullmatch(rf"{told[0]} launches would tell [\d.]+ %: --budget {minutes}m", more)
