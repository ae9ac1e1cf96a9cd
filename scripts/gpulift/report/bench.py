"""What is told of one script, on the terminal and on its page: its arms, and a sentence on the
fastest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpulift.analysis import arms
from gpulift.analysis.facts import UNKNOWN, facts
from gpulift.analysis.reference import Reference
from gpulift.analysis.summary import Summary, Worth
from gpulift.ground import text
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case, group_cases

DRIFT = 2.0  # times as long as at the beginning: that in all launches is no noise
# Of an arm's row; those that nothing is known of are left out.
COLUMNS = (
    *("case", "arm", "time per step", "items per second", "bytes per second"),
    *("operations per second", "of peak", "memory", "CPU per step", "energy per step"),
    *("ratio", "check"),
)
NUMBERS = COLUMNS[2:10]
MEMORY = "device_memory"  # whose peak bytes are held against where an arm names none


@dataclass(frozen=True)
class ArmRow:
    """An arm of a case: its cells by the column's name, and which side of 1 its ratio is on."""

    cells: dict[str, str]
    side: str = ""


def title(summary: Summary) -> str:
    """What was measured, and where."""
    return f"{summary.run.records[0].technique} on {summary.run.machine}"


def rows(summary: Summary) -> list[ArmRow]:
    """An arm per row, held against the first of its case."""
    worths = {(row.case.case_id, row.arm): row for row in summary.worths}
    return [
        _row(case, arm, worths.get((case.case_id, arm)), summary.reference)
        for case in cases(summary)
        for arm in case.arms
    ]


def columns(shown: Sequence[ArmRow]) -> list[str]:
    """Those of which anything is known."""
    return [name for name in COLUMNS if any(row.cells[name] not in ("", UNKNOWN) for row in shown)]


def sentences(summary: Summary) -> Iterator[str]:
    """`compiled ran 1.31 [1.28, 1.34] times as fast as eager`: the fastest arm of each case."""
    fastest: dict[str, Worth] = {}
    for row in summary.worths:  # which begin with the fastest
        fastest.setdefault(row.case.case_id, row)
    for case_id, row in fastest.items():
        where = f"{text.case_label(case_id)}: " if case_id else ""
        ran = f"{row.arm} ran {text.interval(row.speedup)} times as fast as {row.baseline}"
        yield text.visible(f"{where}{ran}{_doubt(row)}")


def caveats(summary: Summary) -> Iterator[str]:
    """What a reader of the table must know of it."""
    at_odds = sum(row.at_odds for row in summary.worths)
    if at_odds:
        yield (
            f"{at_odds} of {len(summary.worths)} ratios differ from time / time: they come from"
            " paired samples, in which a change of the machine's pace cancels out"
        )
    for case in cases(summary):
        left = case.first.launches - len(case.records)
        if left > 0 and not case.measured:
            where = f"{text.case_label(case.case_id)}: " if case.case_id else ""
            others = "the other one was" if left == 1 else f"the other {left} were"
            yield text.visible(f"{where}the first launch ended in an error, so {others} not tried")
        yield from _without_pace(case)
    if summary.others_worked:
        yield f"others took {summary.others_worked} meanwhile: repeat on a quiet machine"


def _without_pace(case: Case) -> Iterator[str]:
    """Arms that slow down, or speed up, within each launch."""
    for arm, launches in case.arms.items():
        grown = [_end_to_beginning(one.windows_in_time_s) for one in launches]
        if min(grown) >= DRIFT or max(grown) <= 1 / DRIFT:
            took = f"{text.visible(arm)} took {text.digits(median(grown))} times as long"
            yield (
                f"steps of {took} at the end of a launch as at its beginning: they have no pace"
                " that a ratio could be of"
            )


def _end_to_beginning(window_s: Sequence[float]) -> float:
    """The last third of a launch's windows against the first."""
    third = max(len(window_s) // 3, 1)
    return median(window_s[-third:]) / median(window_s[:third])


def cases(summary: Summary) -> list[Case]:
    """Those of the script."""
    records = summary.run.records
    kinds = dict.fromkeys(record.kind for record in records)
    return [case for kind in kinds for case in group_cases(records, kind)]


def _row(case: Case, arm: str, row: Worth | None, known_of: Reference | None) -> ArmRow:
    known = facts(case, arm)
    time_s = case.times_s[arm]
    cost = known.cost
    rate = UNKNOWN
    per_s = stats.rate_over(case.arms[arm], stats.items)
    if cost and cost.item and per_s:
        rate = arms.item_rate(per_s.value, cost.item)
    glyph, side = text.verdict(row.speedup) if row else ("", "")
    # Of the launch that says least of it, or whose result was furthest off.
    checked = max(case.arms[arm], key=lambda one: (not one.checked, one.check_error or 0.0))
    cells = (
        text.case_label(case.case_id),
        arm,
        text.seconds(time_s.value),
        rate,
        *_work_rates(case, arm, known_of),
        text.size(known.memory_bytes),
        UNKNOWN if known.cpu_s is None else text.seconds(known.cpu_s),
        UNKNOWN if known.joules is None else text.joules(known.joules),
        f"{glyph} {text.speedup(row.speedup)} against {row.baseline}" if row else "",
        arms.check(checked),
    )
    return ArmRow(dict(zip(COLUMNS, cells, strict=True)), side)


def _work_rates(case: Case, arm: str, reference: Reference | None) -> tuple[str, str, str]:
    """Bytes and operations a second, and the share of the datasheet's peak of its roof."""
    launches = case.arms[arm]
    moved = stats.rate_over(launches, lambda cost: cost.bytes)
    done = stats.rate_over(launches, lambda cost: cost.flops)
    cost = launches[0].cost
    roof = cost.roof if cost and cost.roof else MEMORY
    peak = reference.peak(roof) if reference else None
    reached = done if stats.counts_operations(roof) else moved
    return (
        text.rate(moved.value, "B/s") if moved else UNKNOWN,
        text.rate(done.value, "FLOP/s") if done else UNKNOWN,
        f"{100 * reached.value / peak:.3g} % of {roof}" if reached and peak else UNKNOWN,
    )


def _doubt(row: Worth) -> str:
    """Why a ratio does not tell which of the two is faster, or tells it of one launch alone; that
    the baseline is the fastest."""
    _, word = text.verdict(row.speedup)
    if word == "no interval":
        return f": {text.NO_INTERVAL}"
    shown = {"faster": "", "slower": f": {row.baseline} is the fastest"}.get(word, f": {word}")
    return f", in one launch{shown}" if row.speedup.one_launch else shown
