"""Models side by side: what the same case gives on each, and what others publish, kept apart.

The figure of a model is that of `analysis.over_runs`. One card does not show the spread between
cards of its model, so two single cards never stand for two models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpulift.analysis.over_runs import ModelFigure, over_runs
from gpulift.analysis.reference import Published, Reference
from gpulift.analysis.side_by_side import Fact, figures, per_model, rates, run_figure
from gpulift.analysis.summary import Summary, Worth
from gpulift.ground import text
from gpulift.records.model import Context, Record, slug
from gpulift.report import plots
from gpulift.report.drawing import Drawing

MOST_ROWS = 12  # of a figure; the table has all
NAME_LETTERS = 34
TEXT_LETTERS = 90
COMMIT_DIGITS = 12
ROOFS = "ceilings"
DODGE_ROWS = 0.32  # between the first and the last model of a row
MODEL_IN = 0.08  # more height of a row for each
LEVEL = "95 % intervals over runs, of one run over its launches"


@dataclass(frozen=True)
class Column:
    """A GPU model, or a machine without a GPU; all summaries of it."""

    slug: str
    name: str
    gpu: bool
    summaries: tuple[Summary, ...] = field(repr=False)

    @property
    def counted(self) -> str:
        """`one card`, `5 cards`; records do not tell machines without a GPU apart."""
        if not self.gpu:
            return "one machine"
        gpus = (_context(one).gpu for one in self.summaries)
        cards = len({gpu.card for gpu in gpus if gpu})  # those without a hash count as one
        return "one card" if cards == 1 else f"{cards} cards"


@dataclass(frozen=True)
class PublishedRow:
    """What others report of a model, and what was measured of it here, for comparison by eye."""

    model: str
    entry: Published
    measured: str

    @property
    def shown(self) -> str:
        """The published value with its unit."""
        return text.rate(self.entry.value, self.entry.unit)


@dataclass(frozen=True)
class ModelsView:
    """A technique, or the ceilings, on all models that have it."""

    title: str
    anchor: str
    columns: tuple[Column, ...]
    rows: tuple[Fact, ...]
    figure: Drawing | None
    differs: tuple[str, ...] = ()
    published: tuple[PublishedRow, ...] = ()

    @property
    def ceilings(self) -> bool:
        """Whether the rows are rates of roofs rather than speedups."""
        return self.title == ROOFS


def views(
    summaries: Sequence[Summary], references: Sequence[Reference], techniques: Iterable[str]
) -> tuple[ModelsView, ...]:
    """A view for each of these techniques that two models or more have, in their order, then the
    ceilings with what is published.

    Empty where there is one model and nothing published.
    """
    columns = _columns(summaries)
    found: list[ModelsView] = []
    for technique in techniques:
        having = [one for one in columns if _worths(one, technique)]
        if len(having) > 1:
            rows = _technique_rows(having, technique)
            found.append(_view(technique, len(found), having, rows))
    having = [one for one in columns if any(run.roofs for run in one.summaries)]
    rows = _roof_rows(having) if len(having) > 1 else []
    published = tuple(_published(columns, references))
    if rows or published:
        found.append(_view(ROOFS, len(found), having, rows, published))
    return tuple(found)


# --- Columns and cells ---


def _columns(summaries: Sequence[Summary]) -> list[Column]:
    """Models in the order in which they come."""
    grouped: dict[str, list[Summary]] = {}
    for one in summaries:
        grouped.setdefault(_context(one).slug, []).append(one)
    return [
        Column(slug, mine[0].run.machine, _context(mine[0]).gpu is not None, tuple(mine))
        for slug, mine in grouped.items()
    ]


def _context(summary: Summary) -> Context:
    return summary.run.records[0].context


def _worths(column: Column, technique: str) -> list[tuple[Summary, Worth]]:
    """With the run of each."""
    return [(one, row) for one in column.summaries for row in one.worths_of(technique)]


def _technique_rows(columns: Sequence[Column], technique: str) -> list[Fact]:
    compared = per_model(
        [
            [((row.case.case_id, row.arm, row.baseline), (run, row)) for run, row in each]
            for each in (_worths(column, technique) for column in columns)
        ]
    )
    rows = []
    for (case_id, arm, baseline), members in compared.items():
        cells = tuple(_speedup(each) if each else None for each in members)
        works = {_work(each[0][1]) for each in members if each} - {None}
        row = Fact(case_id, "", "", cells, arm=arm, baseline=baseline, same_work=len(works) < 2)
        rows.append(row)
    return _largest_change_first(rows)


def _work(row: Worth) -> tuple[float, float, float] | None:
    """Of a step of the arm."""
    arm = row.case.first.arm(row.arm)
    cost = arm.cost if arm else None
    return (cost.bytes, cost.flops, cost.items) if cost else None


def _speedup(members: Sequence[tuple[Summary, Worth]]) -> ModelFigure:
    """Over all known runs of the model, else over those that are here."""
    known = [row.of_model for _, row in members if row.of_model]
    of_model = max(known, key=lambda figure: (figure.of_model, figure.decides), default=None)
    here = (run_figure(run, row.speedup, row.case.measured) for run, row in members)
    return of_model or over_runs([*here])


def _roof_rows(columns: Sequence[Column]) -> list[Fact]:
    roofs = per_model([chain.from_iterable(map(rates, each.summaries)) for each in columns])
    return _largest_change_first(
        [
            Fact(f"regime:{regime}", "", unit, figures(runs), arm=name)
            for (name, regime, unit), runs in roofs.items()
        ]
    )


def _largest_change_first(rows: Sequence[Fact]) -> list[Fact]:
    return sorted(rows, key=lambda row: -(row.change or 0.0))


def _view(
    title: str,
    number: int,
    columns: Sequence[Column],
    rows: Sequence[Fact],
    published: tuple[PublishedRow, ...] = (),
) -> ModelsView:
    name = f"models-{number}"
    drawn = [row for row in rows if row.change is not None][:MOST_ROWS]
    said = _said(title, columns, rows)
    figure = Drawing(name, said, partial(_figure, columns, drawn)) if drawn else None
    differs = tuple(_differences(columns)) if rows else ()
    return ModelsView(title, name, tuple(columns), tuple(rows), figure, differs, published)


def _differences(columns: Sequence[Column]) -> Iterable[str]:
    """What else differs between the models' records, besides the model."""
    facts: tuple[tuple[str, Callable[[Record], str]], ...] = (
        ("driver", lambda record: record.context.driver or "none"),
        ("CUDA runtime", lambda record: record.context.cuda_runtime or "none"),
        ("host", lambda record: record.context.host.name),
        ("commit", lambda record: record.context.build.commit[:COMMIT_DIGITS]),
        ("method", lambda record: record.method),
    )
    for what, of in facts:
        values = [
            ", ".join(sorted({of(run.run.records[0]) for run in column.summaries}))
            for column in columns
        ]
        if len(set(values)) > 1:
            parts = (
                f"{plots.short(value, TEXT_LETTERS)} ({plots.short(column.name, NAME_LETTERS)})"
                for column, value in zip(columns, values, strict=True)
            )
            yield f"{what}: {'; '.join(parts)}"


def _published(
    columns: Sequence[Column], references: Sequence[Reference]
) -> Iterable[PublishedRow]:
    """Of the models of the report; of all where nothing is published of these."""
    by_slug = {column.slug: column for column in columns}
    own = [one for one in references if slug(one.name) in by_slug and one.published]
    for reference in own or references:
        column = by_slug.get(slug(reference.name))
        for entry in reference.published:
            yield PublishedRow(reference.name, entry, _measured(column, entry.subject))


def _measured(column: Column | None, subject: str) -> str:
    """The measured rates of that roof: of both regimes, or of the one that the subject names."""
    rows = _roof_rows([column]) if column else []
    regimes = ((row, row.name.partition(":")[2]) for row in rows)
    return ", ".join(
        f"{text.rate(cell.value.value, row.unit)} {regime}"
        for row, regime in regimes
        for cell in row.cells
        if cell and subject in (row.arm, f"roof/{row.arm}/{regime}")
    )


# --- Figure and words ---


def _figure(columns: Sequence[Column], rows: Sequence[Fact]) -> Figure:
    """A row per case and arm, a marker per model; rates are drawn over that of the first model."""
    of_rates = bool(rows[0].unit)
    with matplotlib.rc_context(plots.STYLE):
        row_in = plots.ROW_IN + MODEL_IN * len(columns)
        height = row_in * len(rows) + 1.0 + 0.2 * len(columns)
        figure = Figure(figsize=(plots.WIDTH_IN, height), layout="constrained")
        axes = figure.subplots()
        plots.prepare_rows(axes, len(rows))
        ends = [end for number in range(len(columns)) for end in _draw(axes, columns, number, rows)]
        for position, row in enumerate(rows):
            axes.plot([1, 1], [position - 0.25, position + 0.35], color=plots.MUTED, zorder=0)
            plots.label_row(axes, position, _label(row), f"{row.change:.2f}× apart")
        first = plots.short(columns[0].name, NAME_LETTERS)
        axis = f"rate over that of {first} (more is better)" if of_rates else plots.SPEEDUP
        plots.ratio_axis(axes, ends, f"{axis}\n{LEVEL}")
        figure.legend(loc="outside upper left", fontsize=9)
        return figure


def _draw(
    axes: Axes, columns: Sequence[Column], number: int, rows: Sequence[Fact]
) -> Iterator[float]:
    """Values and intervals of one model; yields what the axis has to hold."""
    column = columns[number]
    colour = plots.SERIES[number % len(plots.SERIES)]
    marker = plots.MARKERS[number % len(plots.MARKERS)]
    offset = DODGE_ROWS * (number / max(1, len(columns) - 1) - 0.5)
    label = f"{plots.short(column.name, NAME_LETTERS)}, {column.counted}"
    for position, row in enumerate(rows):
        cell = row.cells[number]
        if cell is None:
            continue
        one = cell.value.scaled(1 / _first(row) if row.unit else 1.0)
        place = position + 0.05 + offset
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [place] * 2, color=colour, linewidth=1.8)
        axes.plot(one.value, place, marker, color=colour, markersize=5, label=label)
        label = "_"  # one entry of the legend per model
        yield from (end for end in (one.low, one.value, one.high) if end)


def _label(row: Fact) -> str:
    """`mimalloc, one, tokens`."""
    case = text.case_label(row.name, short=True)
    return ", ".join(part for part in (row.arm, case) if part)


def _first(row: Fact) -> float:
    return next(cell.value.value for cell in row.cells if cell)


def _said(title: str, columns: Sequence[Column], rows: Sequence[Fact]) -> str:
    names = ", ".join(f"{plots.short(one.name, NAME_LETTERS)} ({one.counted})" for one in columns)
    head = f"{plots.short(title, NAME_LETTERS)} on {names}."
    both = [row for row in rows if row.change is not None]
    if not both:
        return f"{head} No case was measured as the same work on two of them."
    most, least = both[0], both[-1]
    values = ", ".join(
        f"{text.rate(cell.value.value, most.unit) if most.unit else text.ratio(cell.value.value)}"
        f" on {plots.short(column.name, NAME_LETTERS)}"
        for column, cell in zip(columns, most.cells, strict=True)
        if cell
    )
    label = plots.short(_label(most), TEXT_LETTERS)
    said = f"{head} Changes most: {label}, {values}."
    if least is not most:
        changed = f"{least.change:.2f}×"
        said += f" Changes least: {plots.short(_label(least), TEXT_LETTERS)}, {changed} apart."
    return said
