"""results/BEGIN.md, what to turn on and in which order: `python -m tools.begin`, from committed
records.

The list of things is ours (`analysis.things`). What each is worth, and with it the order, comes
from rows that stand first by the same function as a report's (`analysis.gains`), each with its
grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gpulift.analysis.begin_rows import Answer, Known, Open, Shown, answers, known_from
from gpulift.analysis.things import SITUATIONS, Situation
from tools import begin_cells as cells
from tools.begin_ladders import ladders
from tools.page import write_page

PAGE = "BEGIN.md"
NVLS = "NCCL_NVLS_ENABLE"
HEAD = """# Where to begin

What to turn on first, how, what it brings, what it costs in memory and exactness, and how sure that
is. Measure after each, and stop where it is fast enough or fits.

- **Speed** is time without it / time with it, of a whole training step, with its 95 % interval
  where one is known: ▲ faster, ▼ slower, ≈ no difference shown. Each row is alone over what it
  names; only settings added up were measured together.
- **Memory** is the most that a step has allocated on one GPU, and how much of the baseline's that
  is. torch's allocator keeps some GiB more.
- **Error** is how far the first step's gradients, or its losses where that is said, are from those
  of the technique's reference; in brackets without the setting, where that differs. Compare it
  within a row: techniques have other weights and references.
- **MFU** is a share of the datasheet's dense BF16 peak; FP8 has none.
- **Evidence**: ●●● three launches on each of two cards, ●●○ three launches, ●○○ fewer; *before
  (date)*: the benchmark's code has changed since; *shared host*: other cards or programs were busy
  beside it, as the folded tables say. Whatever is not known to be wrong is shown
  ([what stands first](../scripts/gpulift/METHOD.md#what-stands-first), [known errors](ERRATA.md)).
- H100 or H200? `./gpulift report --models h100 h200`. `./gpulift show ID` prints a record;
  `./gpulift advise -- CMD` measures settings on your script.
"""


def page(known: Known) -> str:
    """The content of BEGIN.md."""
    parts, every = [HEAD, *ladders(known)], []
    for situation in SITUATIONS:
        found = answers(situation, known)
        every += found
        head = f"\n## {_title(situation, found)}\n\n{situation.said}\n\n"
        parts.append(f"{head}{_table(situation, found)}{_details(found, known)}")
    return "".join((*parts, _surer(every)))


def _title(situation: Situation, found: Sequence[Answer]) -> str:
    """Of several GPUs with how many were measured, and without what."""
    records = [shown.gain.row.case.first for one in found for shown in one.shown]
    if not situation.several or not records:
        return situation.title
    counts = sorted({len(one.context.gpus) for one in records})
    off = all(one.context.environment.get(NVLS) == "0" for one in records)
    measured = f"measured on {' and '.join(map(str, counts))}"
    return f"{situation.title} ({measured}{', NVLink SHARP off' if off else ''})"


def _table(situation: Situation, found: Sequence[Answer]) -> str:
    figures = ("memory", "speed") if situation.saves else ("speed", "memory")
    rows: list[Sequence[str]] = [("turn on, and how", *figures, "error", "on, over", "evidence")]
    for place, one in enumerate(found, start=1):
        note = f"<br><sub>{one.thing.note}</sub>" if one.thing.note else ""
        name = f"{one.thing.words}<br>{one.thing.how}{note}"
        if not one.shown:
            rows.append((name, one.why_none, "", "", "", ""))
        for number, shown in enumerate(one.shown):
            rows.append(("" if number else f"**{place}.** {name}", *_cells(shown, situation)))
    return cells.table(rows)


def _cells(shown: Shown, situation: Situation) -> Iterator[str]:
    row = shown.gain.row
    figures = (cells.speed(row), cells.memory(row))
    yield from reversed(figures) if situation.saves else figures
    yield cells.error(row)
    yield f"{shown.job}, {cells.gpus(row)}<br>over {cells.over(row)}"
    yield cells.evidence(shown.gain)


def _details(found: Sequence[Answer], known: Known) -> str:
    """Rates, bounds and records of the rows, folded."""
    rows = [("row", "on", "rate", "TFLOP/s", "bound, beside", "launches", "record")]
    for place, one in enumerate(found, start=1):
        for shown in one.shown:
            row, grade = shown.gain.row, shown.gain.grade
            arm, slug = row.case.arms[row.arm][0], row.case.first.context.slug
            operations = cells.flops(arm, row.time_s.value, known.references.get(slug))
            pace = "; ".join(filter(None, (cells.bound(row), grade.beside, row.clocks)))
            record = f"`{row.case.measured[0].id}`"
            told = (cells.rate(row), operations, pace, str(grade.launches), record)
            rows.append((f"{place}. `{row.arm}`", f"{shown.job}, {cells.gpus(row)}", *told))
    return cells.folded("Rates, bounds, records", cells.table(rows))


def _surer(found: Sequence[Answer]) -> str:
    """The cases that would fill rows, or make them surer, folded."""
    named: dict[Open, list[str]] = {}
    for one in found:
        if one.surer:
            named.setdefault(one.surer, []).append(one.thing.words)
    rows = [("row", "command", "takes")]
    for case, words in named.items():
        takes = "not known" if case.seconds is None else f"{case.seconds:.0f} s"
        takes += f", by {case.of}" if case.of else ""
        rows.append(("; ".join(dict.fromkeys(words)), f"`{case.command}`", takes))
    said = "For who adds records: a case each, three launches, with their seconds by records:\n\n"
    return cells.folded("What would fill these rows, or make them surer", said + cells.table(rows))


def _made(results: Path) -> str:
    return page(known_from(results))


if __name__ == "__main__":
    write_page(PAGE, _made)
