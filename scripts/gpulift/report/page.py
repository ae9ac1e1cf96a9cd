"""The report: one self-contained HTML page, its Markdown twin and PNG figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpulift import decision, machine, tables, text
from gpulift.duets import DuetRow, duet_rows
from gpulift.errors import GpuliftError
from gpulift.qualify.checks import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    CheckResult,
    basis,
    coverage,
    judge_run,
)
from gpulift.qualify.health import judge_health
from gpulift.qualify.tables import GLYPHS, quantity
from gpulift.report import error_rates, plots
from gpulift.report.changes import Change
from gpulift.report.drawing import Drawing
from gpulift.report.summary import Case, Roof, Summary, Worth, headline
from gpulift.runs import write_error

PNG_DPI = 200


@dataclass(frozen=True)
class MachineView:
    """The first screen for one machine."""

    summary: Summary
    results: tuple[CheckResult, ...]
    roofs: Drawing | None
    worths: Drawing | None

    @property
    def coverage(self) -> str:
        """How many checks passed, failed, could not be told and were skipped."""
        return coverage(self.results)

    @property
    def basis(self) -> str:
        """What judged the machine."""
        return basis(self.summary.reference)

    @property
    def notable(self) -> list[CheckResult]:
        """What failed, then roofs and health that have a verdict; the rest is counted."""
        order = (FAIL, INCONCLUSIVE, PASS)
        found = [r for r in self.results if r.verdict == FAIL or _decides(r)]
        return sorted(found, key=lambda r: order.index(r.verdict))

    @property
    def untold(self) -> list[CheckResult]:
        """Step times and costs that could not be told from their limit."""
        return [r for r in self.results if r.verdict == INCONCLUSIVE and not _decides(r)]


@dataclass(frozen=True)
class TechniqueView:
    """One technique on all machines of the report; `cells` has one entry per machine."""

    id: str
    case: Case
    rows: tuple[tuple[Worth, tuple[Worth | None, ...]], ...]
    figures: tuple[Drawing, ...]


def write(
    summaries: Sequence[Summary],
    out: Path,
    verdicts: Mapping[Path, Sequence[CheckResult]] | None = None,
    changes: Sequence[Change] = (),
    results: Path | None = None,
) -> Path:
    """Writes the report of machines and changes into a folder; returns the page's path.

    `verdicts` of a run folder are shown as they are; others are made from the records alone.
    Certificates come from `results`, by default the checkout's.
    """
    if not summaries and not changes:
        raise GpuliftError("there is nothing to report")
    judged = [_judged(summary, verdicts or {}) for summary in summaries]
    machines = [
        _machine_view(summary, found, i)
        for i, (summary, found) in enumerate(zip(summaries, judged, strict=True))
    ]
    techniques = _technique_views(summaries)
    duets = duet_rows([summary.run for summary in summaries])
    duet = _duet_drawing(duets)
    models = [summary.run.records[0].context.slug for summary in summaries]
    certificates = error_rates.views(
        [*models, *(change.machine for change in changes)],
        results or machine.checkout_root() / "results",
    )
    drawings = [d for m in machines for d in (m.roofs, m.worths) if d]
    drawings += [d for t in techniques for d in t.figures] + ([duet] if duet else [])
    drawings += [one.curve for one in certificates if one.curve]
    values = {
        "machines": machines,
        "summaries": list(summaries),
        "changes": list(changes),
        "certificates": certificates,
        "roof_rows": _roof_rows(summaries),
        "techniques": techniques,
        "duets": duets,
        "duet_figure": duet,
    }
    _write_files(out, drawings, values)
    return out / "report.html"


def _write_files(out: Path, drawings: Sequence[Drawing], values: Mapping[str, object]) -> None:
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for drawing in drawings:
            png = out / "figures" / f"{drawing.name}.png"
            drawing.figure.savefig(png, dpi=PNG_DPI, facecolor="white")
        for name in ("report.html", "report.md"):
            page = _environment(name).get_template(f"{name}.j2").render(values)
            (out / name).write_text(page, encoding="utf-8")
    except OSError as error:
        raise write_error(out, error) from None


def _environment(page: str) -> Environment:
    """HTML escapes every text; Markdown does with what would end a table's cell or begin a tag."""
    html = page.endswith(".html")
    environment = Environment(
        loader=PackageLoader("gpulift.report"),
        autoescape=html,
        finalize=None if html else _plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        rate=text.rate,
        seconds=text.seconds,
        size=text.size,
        percent=text.percent,
        change=decision.percent,
        speedup=text.speedup,
        glyph=lambda estimate: text.verdict(estimate)[0],
        verdict=lambda estimate: text.verdict(estimate)[1],
        case=text.case_label,
        check=tables.check,
        quantity=quantity,
        judged=lambda result: GLYPHS[result.verdict],
        groups=tables.group_problems,
    )
    return environment


def _plain(value: object) -> object:
    if not isinstance(value, str):
        return value
    return " ".join(value.split("\n")).replace("<", "&lt;").replace("|", "\\|")


def _decides(result: CheckResult) -> bool:
    return result.verdict != SKIPPED and result.id.startswith(("roof/", "health/"))


def _judged(
    summary: Summary, verdicts: Mapping[Path, Sequence[CheckResult]]
) -> tuple[CheckResult, ...]:
    known = verdicts.get(summary.run.folder)
    if known is not None:
        return tuple(known)
    health = judge_health(None, None, summary.run.records)
    return judge_run(summary, summary.reference, health)


def _machine_view(summary: Summary, results: tuple[CheckResult, ...], number: int) -> MachineView:
    name = summary.run.machine
    bars = plots.roof_bars(summary.roofs)
    rows = headline(summary)
    forest = plots.forest([plots.worth_row(r) for r in rows], plots.SPEEDUP_AXIS) if rows else None
    roofs_alt = f"Measured ceilings of {name} as a share of the datasheet; values in the table."
    worth_alt = f"Best and worst speedup of each technique on {name}; values in the tables."
    return MachineView(
        summary,
        results,
        Drawing(f"roofs-{number}", roofs_alt, bars) if bars else None,
        Drawing(f"techniques-{number}", worth_alt, forest) if forest else None,
    )


def _roof_rows(
    summaries: Sequence[Summary],
) -> list[tuple[tuple[str, str], list[Roof | None]]]:
    """Roof and regime, with the roof of each machine or None."""
    found = [{(roof.name, roof.regime): roof for roof in one.roofs} for one in summaries]
    keys = sorted({key for roofs in found for key in roofs})
    return [(key, [roofs.get(key) for roofs in found]) for key in keys]


def _technique_views(summaries: Sequence[Summary]) -> list[TechniqueView]:
    """Techniques in the order of their best gain on the first machine that has them."""
    first: dict[str, Case] = {}
    for summary in summaries:
        for row in summary.worths:
            first.setdefault(row.technique, row.case)
    return [_technique_view(id, case, summaries) for id, case in first.items()]


def _technique_view(id: str, case: Case, summaries: Sequence[Summary]) -> TechniqueView:
    columns = [{row.key: row for row in one.worths if row.technique == id} for one in summaries]
    shown: dict[tuple[str, str, str], Worth] = {}
    for column in columns:
        for key, row in column.items():
            shown.setdefault(key, row)
    rows = [(row, tuple(column.get(key) for column in columns)) for key, row in shown.items()]
    drawings = []
    for number, (one, column) in enumerate(zip(summaries, columns, strict=True)):
        if len(column) > 1:
            drawings.append(_technique_drawing(id, list(column.values()), one, number))
    return TechniqueView(id, case, tuple(rows), tuple(drawings))


def _technique_drawing(id: str, rows: Sequence[Worth], one: Summary, number: int) -> Drawing:
    name = f"{id.replace('/', '-')}-{number}"
    if plots.sweep_axis(rows):
        alt = f"{id} on {one.run.machine}: speedup along {plots.sweep_axis(rows)}; values below."
        return Drawing(name, alt, plots.sweep(rows))
    alt = f"{id} on {one.run.machine}: speedup of each case and arm; values in the table."
    labelled = [plots.worth_row(row, short=True) for row in rows]
    return Drawing(name, alt, plots.forest(labelled, plots.SPEEDUP_AXIS))


def _duet_drawing(rows: Sequence[DuetRow]) -> Drawing | None:
    if not rows:
        return None
    shown = [
        plots.ForestRow(
            f"{row.technique}: {row.arm}, {text.case_label(row.case_id)}",
            row.pair.ratio,
            f"{row.pair.ratio.value:.4f}",
            slower_is_above=True,
        )
        for row in rows
    ]
    figure = plots.forest(shown, "time of head / time of base, 95 % interval (below 1: faster)")
    return Drawing("duet", "Head build against base build; values in the table.", figure)
