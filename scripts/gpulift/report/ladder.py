"""What to turn on, and in which order: rates by setting, each on top of those before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from gpulift.analysis.ladder import Ladder, Rung
from gpulift.ground import text
from gpulift.report import escaping, plots
from gpulift.report.drawing import Drawing
from gpulift.report.plots import RateRow
from gpulift.report.views import MachineView


@dataclass(frozen=True)
class LadderView:
    """A model's ladder on a machine, and its figure."""

    machine: MachineView
    ladder: Ladder
    drawing: Drawing

    @property
    def id(self) -> str:
        """Of its table, and the name of the figure."""
        return self.drawing.name

    @property
    def launches(self) -> str:
        """How much the rates rest on."""
        return plots.launches(one.per_s for one in self.ladder.rungs)

    @property
    def memory(self) -> bool:
        """Whether any rung's is known."""
        return any(one.memory_bytes for one in self.ladder.rungs)

    @property
    def joules(self) -> bool:
        """Whether any rung's are known."""
        return any(one.joules is not None for one in self.ladder.rungs)

    @property
    def usd(self) -> bool:
        """Whether any rung has a price."""
        return any(one.usd for one in self.ladder.rungs)


def views(machines: Iterable[MachineView]) -> list[LadderView]:
    """Those of each machine."""
    return [
        LadderView(one, ladder, drawing(f"settings-{one.number}-{number}", ladder))
        for one in machines
        for number, ladder in enumerate(one.ladders)
    ]


def drawing(name: str, ladder: Ladder) -> Drawing:
    """A bar for each rung, with its rate and what it brings over the one before."""
    rows = [RateRow(one.name, one.per_s, _value(one)) for one in ladder.rungs]
    axis = f"{ladder.item}s/s with their 95 % interval (more is better)"
    said = ", ".join(
        f"{escaping.brief(one.name)} {text.digits(one.per_s.value)}{_gain(one)}"
        for one in ladder.rungs
    )
    gpu = ladder.case.first.context.gpu
    where = f" on {escaping.brief(gpu.name)}" if gpu else ""
    alt = (
        f"{escaping.brief(ladder.model)}{where}, {escaping.brief(ladder.item)}s a second by"
        f" setting, each with all above it and over the one above: {said}."
    )
    return Drawing(name, alt, partial(plots.rates, rows, axis))


def _value(rung: Rung) -> str:
    """`24300  ▲ 4.10×`."""
    step = rung.brings
    glyph = f"{text.verdict(step.speedup)[0]} " if step else ""
    return f"{text.digits(rung.per_s.value)}  {glyph}{_ratio(rung)}".rstrip()


def _gain(rung: Rung) -> str:
    return f" ({_ratio(rung)})" if rung.brings else ""


def _ratio(rung: Rung) -> str:
    return text.ratio(rung.brings.speedup.value) if rung.brings else ""
