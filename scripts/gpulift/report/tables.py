"""Tables on the terminal; on anything else the same tables as plain lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from gpulift.analysis import arms, facts
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.gains import headline, ordered
from gpulift.analysis.summary import Problem, Roof, Summary, Worth
from gpulift.engine.doctor import Finding
from gpulift.ground import terminal, text

Why = tuple[str, str, str]  # outcome, reason and remedy of what was not measured
MOST_NAMED = 5  # techniques of one reason; of more the report names each


def roofs(summary: Summary, others: Sequence[Summary] = ()) -> Table:
    """How close the machine is to its own roofs."""
    spared = [*(other.run.machine for other in reversed(others)), "SM clock, power", "datasheet"]
    table = terminal.titled("How close is this machine to its measured peaks?", spared)
    for name in ("roof", "regime", "measured", "datasheet", "of it"):
        table.add_column(name, justify="right" if name in ("measured", "datasheet") else "left")
    table.add_column("SM clock, power")
    for other in others:
        table.add_column(other.run.machine, justify="right")
    known = {(roof.name, roof.regime): roof for roof in summary.roofs}
    theirs = [{(roof.name, roof.regime): roof for roof in other.roofs} for other in others]
    for key in sorted({*known, *(key for found in theirs for key in found)}):
        row = _roof_cells(known.get(key))
        beside = [_roof_beside(found.get(key)) for found in theirs]
        table.add_row(*key, *row, *beside)
    return table


def unit_costs(summary: Summary) -> Table:
    """Time per item of ceilings that no datasheet knows."""
    title = "What does one launch, or another smallest piece of work, cost here?"
    table = terminal.titled(title, ["clock"])
    for name in ("technique", "case", "arm", "clock", "time of one", ""):
        table.add_column(name)
    for row in summary.unit_costs:
        case = text.case_label(row.case.case_id)
        time = text.seconds(row.time_s.value)
        table.add_row(row.case.technique, case, row.arm, row.clock, time, row.remark)
    return table


def worths(summary: Summary, others: Sequence[Summary] = (), doubts: Doubts = NO_DOUBTS) -> Table:
    """What each technique is worth, whole training steps first, other machines beside it.

    Of what only other machines have measured, each technique's best and worst is shown.
    """
    title = "What is each technique worth on it? (speedup, 95 % interval; more than 1: faster)"
    spared = (other.run.machine for other in reversed(others))
    table = terminal.titled(title, [*spared, "check", "memory, arm / baseline", "against"])
    for name in ("technique", "case", "arm", "against"):
        table.add_column(name)
    for name in ("speedup", "memory, arm / baseline", "check"):
        table.add_column(name, justify="right")
    for other in others:
        table.add_column(other.run.machine, justify="right")
    theirs = [{row.key: row for row in other.worths} for other in others]
    mine = {row.key: row for row in summary.worths}
    elsewhere = [row for other in others for row in headline(other, doubts) if row.key not in mine]
    for row in ordered([*summary.worths, *elsewhere], doubts):
        here = _worth_cells(row) if row.key in mine else ["not measured here", "", ""]
        beside = [_worth_beside(found.get(row.key)) for found in theirs]
        case = text.case_label(row.case.case_id)
        arm = f"{row.arm} (control)" if row.of_control else row.arm
        table.add_row(row.technique, case, arm, row.baseline, *here, *beside)
    return table


def problems(found: Sequence[Problem], title: str) -> Table:
    """What was not measured, with reason and remedy; equal reasons of a technique are one row, and
    so are those of many techniques, as where there is no GPU."""
    table = terminal.titled(title)
    for name in ("technique", "cases", "outcome", "reason", "remedy"):
        table.add_column(name)
    rows: dict[Why, list[tuple[str, str]]] = {}
    for (technique, *told), cases in group_problems(found):
        rows.setdefault((told[0], told[1], told[2]), []).append((technique, cases))
    counts = Counter(map(_why, found))
    for why, named in rows.items():
        many = [(f"{len(named)} techniques", f"{counts[why]} cases")]
        for technique, cases in named if len(named) <= MOST_NAMED else many:
            table.add_row(technique, cases, *why)
    return table


def group_problems(found: Sequence[Problem]) -> list[tuple[tuple[str, str, str, str], str]]:
    """(technique, outcome, reason, remedy) and the cases that share them: named, or counted."""
    groups: dict[tuple[str, str, str, str], list[Problem]] = {}
    for problem in found:
        groups.setdefault((problem.technique, *_why(problem)), []).append(problem)
    return [(key, _cases(members)) for key, members in groups.items()]


def _why(problem: Problem) -> Why:
    reason = f"{problem.arm}: {problem.reason}" if problem.arm else problem.reason
    return problem.outcome, reason, problem.remedy


def _cases(members: Sequence[Problem]) -> str:
    return text.case_label(members[0].case_id) if len(members) == 1 else f"{len(members)} cases"


def findings(found: Sequence[Finding]) -> Table:
    """What doctor saw."""
    table = terminal.titled("")
    for name in ("", "what", "found", "remedy"):
        table.add_column(name)
    for one in found:
        table.add_row("✓" if one.usable else "✗", one.what, one.found, one.remedy)
    return table


def _roof_cells(roof: Roof | None) -> list[str]:
    if roof is None:
        return ["not measured here", "", "", ""]
    state = []
    if roof.sm_clock_hz:
        state.append(f"{roof.sm_clock_hz / 1e6:.0f} MHz")
    if roof.power:
        state.append(roof.power)
    state += roof.throttle
    datasheet = text.rate(roof.peak, roof.unit) if roof.peak else "–"
    share = text.percent(roof.fraction)
    return [text.rate(roof.rate.value, roof.unit), datasheet, share, ", ".join(state)]


def _roof_beside(roof: Roof | None) -> str:
    return text.rate(roof.rate.value, roof.unit) if roof else "–"


def _worth_cells(row: Worth) -> list[str]:
    glyph, _ = text.verdict(row.speedup)
    memory = "\n".join(facts.memory(row.facts, row.baseline_facts))
    gain = (f"{glyph} {text.speedup(row.speedup)}", text.saved(row.saved_s), *row.remarks)
    return ["\n".join(filter(None, gain)), memory, check(row)]


def check(row: Worth) -> str:
    """The check's error beside its tolerance; only arms that passed it, or had none, were timed."""
    if not row.checked:
        return arms.NOT_CHECKED
    if row.check_error is None:
        return "–"
    if row.check_error == 0:
        return "✓ exact"
    allowed = "" if row.check_tolerance is None else f" ≤ {row.check_tolerance:.2g}"
    return f"✓ {row.check_error:.2g}{allowed}"


def _worth_beside(row: Worth | None) -> str:
    return text.speedup(row.speedup) if row else "–"
