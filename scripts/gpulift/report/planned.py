"""Which figures a report has, and what each says in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from gpulift.analysis import gains
from gpulift.analysis.gains import FIRST_MODELS, AnswerLine, Gain, StepLine
from gpulift.analysis.summary import Roof, Summary, Worth
from gpulift.ground import text
from gpulift.report import escaping, findings, plots, roofline, scaling
from gpulift.report.drawing import Drawing
from gpulift.report.limits import Limits
from gpulift.report.machine_views import MachineView
from gpulift.report.technique_views import part_id
from gpulift.verdicts.duets import DuetRow


def of_machines(machines: Sequence[MachineView], most: Limits) -> Iterator[Drawing | None]:
    """Roofline, ceilings and the forest of techniques of the first machines, each if it has one."""
    for one in machines[: most.machines]:
        yield roofline.drawing(one.summary, one.number, _without_roofs(one, machines))
        yield _bars(one)
        yield _forest(one, most.forest)


def of_techniques(
    machines: Sequence[MachineView], anchors: Mapping[str, str], most: Limits
) -> Iterator[Drawing]:
    """Speedups along an axis of the cases, for the first techniques that have one."""
    drawn = [pair for pair in _sweeps(machines, anchors) if _panels(*pair) <= most.panels]
    for view, technique in drawn[: most.sweeps]:
        yield _sweep(view, technique, anchors[technique])


def left_out(
    machines: Sequence[MachineView],
    anchors: Mapping[str, str],
    models: int,
    several: int,
    most: Limits,
) -> str:
    """What is not drawn because there is too much of it; empty where all is drawn.

    `models` and `several` are how many figures there are over models, and of several GPUs.
    """
    sweeps = _sweeps(machines, anchors)
    drawn = [pair for pair in sweeps if _panels(*pair) <= most.panels][: most.sweeps]
    counts = (
        (len(machines) - most.machines, "machines"),
        (len(sweeps) - len(drawn), "techniques on a machine"),
        (models - most.models, "techniques over models"),
        (several - most.sweeps, "techniques on several GPUs"),
    )
    counted = [f"{count} {what}" for count, what in counts if count > 0]
    said = [f"Figures of {', of '.join(counted)} are not drawn: tables have it."] if counted else []
    said += [
        f"The figure {one.forest} has {_furthest_of(one, most.forest)}."
        for one in machines[: most.machines]
        if _techniques(one) > most.forest
    ]
    return " ".join(said)


def _without_roofs(view: MachineView, machines: Sequence[MachineView]) -> list[Summary]:
    """Runs of the same machine that measured no roof, for the first of it that did."""
    same = [one.summary for one in machines if one.summary.run.model == view.summary.run.model]
    first = next((one for one in same if one.roofs), None)
    return [one for one in same if not one.roofs] if first is view.summary else []


def of_duets(rows: Sequence[DuetRow]) -> Drawing | None:
    """Head against base, a row per arm; None without any."""
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
    axis = "time of head / time of base, 95 % interval (below 1: faster)"
    ratios = [row.pair.ratio.value for row in rows]
    alt = f"Head build against base build: {min(ratios):.4f} to {max(ratios):.4f} times as long."
    return Drawing("duet", alt, partial(plots.forest, shown, axis))


def _bars(view: MachineView) -> Drawing | None:
    known = [roof for roof in view.summary.roofs if roof.fraction is not None]
    draw = partial(plots.roof_bars, known)
    return Drawing(view.bars, _roofs_alt(view.summary, known), draw) if known else None


def _forest(view: MachineView, most: int) -> Drawing | None:
    """It is no part of the page, whose answer has the same as marks in a table."""
    steps = view.steps[:most]
    lines = _furthest(view.lines, most - len(steps))
    rows = [plots.worth_row(row) for row in gains.in_order(steps, lines)]
    if not rows:
        return None
    draw = partial(plots.forest, rows, plots.SPEEDUP_AXIS)
    return Drawing(view.forest, _forest_alt(view, steps, lines), draw, inline=False)


def _techniques(view: MachineView) -> int:
    return len(view.steps) + len(view.lines)


def _furthest(lines: Sequence[AnswerLine], most: int) -> Sequence[AnswerLine]:
    """As many building blocks as the figure may have: those that gain or lose most."""
    if len(lines) <= most:
        return lines
    chosen = sorted(lines, key=_effect, reverse=True)[:most]
    return [line for line in lines if line in chosen]


def _furthest_of(view: MachineView, most: int) -> str:
    return f"the {most} techniques of {_techniques(view)} with the largest effects"


def _effect(line: AnswerLine) -> float:
    return max(abs(math.log(row.speedup.value)) for row in line.ends)


def _sweeps(
    machines: Sequence[MachineView], anchors: Mapping[str, str]
) -> list[tuple[MachineView, str]]:
    """Machine by machine, the techniques whose cases have an axis."""
    return [
        (view, technique)
        for view in machines
        for technique in anchors
        if plots.sweep_axis(_rows(view, technique))
    ]


def _panels(view: MachineView, technique: str) -> int:
    rows = _rows(view, technique)
    axis = plots.sweep_axis(rows) or ""
    return len({plots.other_axes(row, axis) for row in rows})


def _sweep(view: MachineView, technique: str, anchor: str) -> Drawing:
    rows = _rows(view, technique)
    where = f"{escaping.brief(technique)} on {escaping.brief(view.summary.run.machine)}"
    said = ". ".join(escaping.brief(one, findings.MOST_LETTERS) for one in findings.of_rows(rows))
    alt = f"{where}, speedup along {escaping.brief(plots.sweep_axis(rows) or '')}. {said}."
    return Drawing(part_id(anchor, view), alt, partial(plots.sweep, rows))


def _rows(view: MachineView, technique: str) -> Sequence[Worth]:
    """Those that no figure of their own has."""
    return [row for row in view.summary.worths_of(technique) if not scaling.scales(row)]


def _forest_alt(view: MachineView, steps: Sequence[StepLine], lines: Sequence[AnswerLine]) -> str:
    name = escaping.brief(view.summary.run.machine)
    drawn = len(steps) + len(lines)
    ends = f"each technique's best and worst case on {name}"
    if drawn < _techniques(view):
        ends = f"the best and worst case on {name} of {_furthest_of(view, drawn)}"
    said = []
    if steps:
        listed = "; ".join(map(step_words, steps))
        said.append(f"Gains in whole training steps on {name}: {listed}.")
    if lines:
        said.append(f"Speedups of {ends}: {'; '.join(map(line_words, lines))}.")
    return " ".join(said)


def step_words(line: StepLine) -> str:
    """`precision/mixed pure_bf16 4.3× on GPT-2`."""
    said = (
        f"{escaping.brief(one.row.arm)} {text.ratio(one.row.speedup.value)} on {_model(one)}"
        for one in line.drawn
    )
    return f"{escaping.brief(line.technique)} {', '.join(said)}"


def _model(gain: Gain) -> str:
    return FIRST_MODELS.get(gain.model) or escaping.brief(gain.model)


def line_words(line: AnswerLine) -> str:
    """`precision/matmul up to 27×, down to 1.1×`."""
    best = f"{escaping.brief(line.technique)} up to {text.ratio(line.best.speedup.value)}"
    return f"{best}, down to {text.ratio(line.worst.speedup.value)}" if line.worst else best


def _roofs_alt(summary: Summary, roofs: Iterable[Roof]) -> str:
    known = sorted(roofs, key=lambda roof: roof.fraction or 0.0)
    ends = [f"{text.percent(one.fraction)} ({_roof(one)})" for one in (known[0], known[-1])]
    name = escaping.brief(summary.run.machine)
    said = " to ".join(dict.fromkeys(ends))
    return f"The measured ceilings of {name} are {said} of the datasheet."


def _roof(roof: Roof) -> str:
    return f"{escaping.brief(roof.name)}, {roof.regime}"
