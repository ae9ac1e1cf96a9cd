"""A comparison of two sets of records as a table of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from gpulift.ground import steps
from gpulift.ground.steps import step
from gpulift.verdicts import decision, explain
from gpulift.verdicts.comparison import UNITS, ArmPair, Comparison, values
from gpulift.verdicts.decision import TWO_RUNS, Difference, percent
from gpulift.verdicts.row import Row, Table

NAME = "gpulift compare"
STATS_METHOD = "1"  # of stats.py, as its docstring says
CHANGED = (decision.ERROR, decision.REGRESSED, decision.IMPROVED)
EFFECTS = (0.01, 0.02, 0.05, 0.1, 0.2)  # changes that further launches could tell
MOST_LAUNCHES = 32  # that are proposed


def table(made: Comparison) -> Table:
    """All rows, worst first."""
    return Table(
        name=NAME,
        title=f"base {', '.join(made.base)}, head {', '.join(made.head)}",
        rows=tuple(_row(pair, made) for pair in made.rows),
        exit_code=made.exit_code,
        notes=(*made.unfinished, *_untold(made)),
        conditions=tuple(_conditions(made)),
        data=_document(made),
    )


def _row(pair: ArmPair, made: Comparison) -> Row:
    base, head = ("", "")
    if pair.change is not None:
        base, head = explain.sides(pair.base, pair.change, made.unit)
    look, reason = pair.verdict.difference, decision.more_than_effect(pair.verdict)
    if pair.verdict.verdict == decision.INCONCLUSIVE and look and not reason:
        among = f", but not among {made.family} comparisons" if made.family > 1 else ""
        reason = f"looks {word}{among}" if (word := _looks(look)) else ""
    return pair.verdict.row(
        pair.name,
        pair.margins.least,
        group=pair.technique,
        base=base,
        head=head,
        reason=reason,
        note=pair.measure,
        notable=pair.verdict.verdict in CHANGED,
        steps=partial(_steps, pair, made),
        data=partial(_data, pair, made.unit),
    )


def _steps(pair: ArmPair, made: Comparison) -> list[str]:
    facts = [f"{len(made.common.equal)} facts are equal on both sides"]
    facts += [f"declared with --across: {fact}" for fact in made.common.declared]
    facts += [f"the question: {made.question}"] if made.question else []
    facts += [f"only one side records {name}" for name in made.common.one_sided]
    facts += [f"the work may differ: {what}" for what in made.work.get(pair.technique, ())]
    lines = [step(steps.COMPARABILITY, fact) for fact in facts]
    return [*lines, *explain.explain(pair.base, pair.head, pair.verdict, made.unit)]


def _untold(made: Comparison) -> Iterator[str]:
    """Of the rows that have no answer how many there are for each reason, and what would give
    one."""
    rows = [pair.verdict for pair in made.rows if pair.verdict.verdict == decision.INCONCLUSIVE]
    reasons = Counter(filter(None, map(decision.more_than_effect, rows)))
    varied = [
        verdict.difference
        for verdict in rows
        if verdict.difference and not decision.more_than_effect(verdict)
    ]
    if varied:
        looks = Counter(map(_looks, varied))
        some = [f"{looks[word]} look {word}" for word in ("slower", "faster") if looks[word]]
        some_look = f" ({', '.join(some)})" if some else ""
        yield f"{len(varied)} could not be told: {UNITS[made.unit]} vary too much{some_look}"
        yield _further(varied, made)
    for reason, count in reasons.items():
        yield f"{count} could not be told: {reason}"


def _further(varied: Sequence[Difference], made: Comparison) -> str:
    """How many launches would tell how small a change in most of these, as far as their spread
    tells."""
    alpha, unit = decision.FAMILY_ALPHA / max(1, made.family), UNITS[made.unit]
    more = decision.further(varied, EFFECTS, alpha, TWO_RUNS.least, MOST_LAUNCHES)
    if more is None:
        return f"{MOST_LAUNCHES} {unit} a side would not tell {percent(EFFECTS[-1])} in most"
    effect, launches, seen = more
    part = f" in {seen} of them" if seen < len(varied) else ""
    how = f": measure both with --launches {launches}" if made.unit == "launch" else ""
    return f"{launches} {unit} a side would tell {percent(effect)}{part}{how}"


def _looks(difference: Difference) -> str:
    """Where its interval alone is on one side of no change, that side."""
    low, high = difference.ratio.low or 0.0, difference.ratio.high or math.inf
    return "slower" if low > 1 else "faster" if high < 1 else ""


def _conditions(made: Comparison) -> Iterator[str]:
    """What the verdicts hang on."""
    if made.question:
        yield f"question: {made.question}"
    yield from (f"declared difference: {fact}" for fact in made.common.declared)
    yield from (f"{name}: {asked}" for name, asked in made.asked)
    yield from made.work_lines
    yield (
        f"a change is more than {percent(TWO_RUNS.least)}, equivalent is within"
        f" ±{percent(TWO_RUNS.equivalent)}, where nothing else is asked; family of {made.family}"
        f" over {UNITS[made.unit]}: chance of any false regression {percent(decision.FAMILY_ALPHA)}"
    )
    yield (
        f"{len(made.common.equal)} facts of machine and build are equal on both sides; stats method"
        f" {STATS_METHOD}, decision method {decision.DECISION_METHOD}"
    )


def _document(made: Comparison) -> dict[str, Any]:
    both = {"least": TWO_RUNS.least, "equivalent": TWO_RUNS.equivalent}
    return {
        "stats_method": STATS_METHOD,
        "decision_method": decision.DECISION_METHOD,
        "base": list(made.base),
        "head": list(made.head),
        "across": made.across,
        "question": made.question,
        "declared": [vars(fact) for fact in made.common.declared],
        "equal": dict(made.common.equal),
        "known_on_one_side": list(made.common.one_sided),
        "unit": made.unit,
        "family": made.family,
        "margins": both,
        "thresholds": dict(made.thresholds),
        "filter": made.filter,
        "counts": made.counts,
        "unfinished": list(made.unfinished),
        "notes": list(made.notes),
        "work": {technique: list(differs) for technique, differs in made.work.items()},
    }


def _data(pair: ArmPair, unit: str) -> dict[str, Any]:
    difference, attributed = (
        pair.verdict.difference,
        explain.attribution(pair.base, pair.head, pair.verdict),
    )
    low, high = (difference.ratio.low, difference.ratio.high) if difference else (None, None)
    return {
        "technique": pair.technique,
        "case": pair.case_id,
        "arm": pair.arm,
        **pair.verdict.data(pair.margins),
        "measure": pair.quantity,
        "change": pair.change,
        "low": low - 1 if low else None,
        "high": high - 1 if high else None,
        "log_mean": difference.log_mean if difference else None,
        "standard_error": difference.standard_error if difference else None,
        "degrees_of_freedom": difference.degrees if difference else None,
        "units": [difference.base_launches, difference.head_launches] if difference else None,
        "unit_logs": {"base": values(pair.base, unit), "head": values(pair.head, unit)},
        "attribution": attributed.data if attributed else None,
        "base": [explain.run_launch_data(launch) for launch in pair.base],
        "head": [explain.run_launch_data(launch) for launch in pair.head],
    }
