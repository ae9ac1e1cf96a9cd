"""What to turn on, and in which order: rates by setting, each on top of those before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from gpulift.analysis.arm_names import setting
from gpulift.analysis.ladder import Ladder, Rung
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.report import escaping, plots
from gpulift.report.drawing import Drawing
from gpulift.report.machine_views import MachineView
from gpulift.report.plots import Bar

GIB = 1 << 30
FAR = 3.0  # times the reference's distance, from which on a rung says its own


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


def name_of(arm: str) -> str:
    """What people call it."""
    return setting(arm)[0]


def drawing(name: str, ladder: Ladder, about: str = "") -> Drawing:
    """A bar for each rung with its rate, and its speedup vs the reference. Rungs that cost speed
    are there for memory: they are only named. `about` stands below."""
    costly = [one.name for one in ladder.rungs if _costs_speed(one)]
    rungs = [one for one in ladder.rungs if one.name not in costly]
    left_out = f"; for memory, and slower: {', '.join(map(name_of, costly))}" if costly else ""
    axis = f"{ladder.item}s/s, 95 % intervals{left_out}"
    bars = [
        _bar(ladder, one, one.per_s, f"{_number(one.per_s.value)}  {_ratio(ladder, one)}")
        for one in rungs
    ]
    said = ", ".join(
        f"{name_of(one.name)} {_number(one.per_s.value)} {_beside(ladder, one)}".rstrip()
        for one in rungs
    )
    alt = (
        f"{_where(ladder)}, {escaping.brief(ladder.item)}s a second, cumulative settings, vs"
        f" {name_of(ladder.reference)}: {escaping.brief(said, 600)}{left_out}."
    )
    return Drawing(name, alt, partial(plots.bars, bars, axis, about=about))


def memory_drawing(name: str, ladder: Ladder, about: str = "") -> Drawing:
    """A bar for each rung with the peak that it allocated on the device, and its share of the
    reference's."""
    least = {one.name: one.memory_bytes for one in ladder.rungs}[ladder.reference]
    bars, said = [], []
    for one in ladder.rungs:
        if not one.memory_bytes or not least:
            continue
        size, share = text.size(one.memory_bytes), f"{one.memory_bytes / least:.2f}"
        speed = f", speed {ratio}" if (ratio := _ratio(ladder, one)) else ""
        bar = _bar(ladder, one, Estimate(one.memory_bytes / GIB), f"{size}  {share}")
        bars.append(replace(bar, label=f"{name_of(one.name)}{speed}", hatched=False))
        said.append(f"{name_of(one.name)} {size.removesuffix(' GiB')}")
    axis = f"GiB allocated at the peak, and share of {name_of(ladder.reference)}'s"
    alt = f"{_where(ladder)}, peak GiB, cumulative settings: {', '.join(said)}."
    return Drawing(name, alt, partial(plots.bars, bars, axis, about=about))


def _bar(ladder: Ladder, rung: Rung, length: Estimate, value: str) -> Bar:
    """Grey ahead of the reference, hatched where less exact than it."""
    names = [one.name for one in ladder.rungs]
    ahead = names.index(rung.name) < names.index(ladder.reference)
    label = f"{name_of(rung.name)}{_exactness(ladder, rung, ': ')}"
    colour = plots.MUTED if ahead else plots.BLUE
    return Bar(label, length, value.rstrip(), colour, bool(_exactness(ladder, rung)))


def _where(ladder: Ladder) -> str:
    gpu = ladder.case.first.context.gpu
    return escaping.brief(ladder.model) + (f" on {escaping.brief(gpu.name)}" if gpu else "")


def _costs_speed(rung: Rung) -> bool:
    """Whether it is slower than the rung before, and takes less memory."""
    step = rung.brings
    return bool(step and rung.saved_bytes > 0 and text.verdict(step.speedup)[1] == "slower")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else text.digits(value)


def _ratio(ladder: Ladder, rung: Rung) -> str:
    """`1.40×`; of the reference `1.00`; empty where it is withheld."""
    if rung.name == ladder.reference:
        return "1.00"
    return text.ratio(rung.whole.speedup.value) if rung.whole and not rung.whole.why_not else ""


def _beside(ladder: Ladder, rung: Rung) -> str:
    parts = (_ratio(ladder, rung), _exactness(ladder, rung))
    said = "; ".join(filter(None, parts))
    return f"({said})" if said else ""


def _exactness(ladder: Ladder, rung: Rung, before: str = "") -> str:
    """`gradients 0.46 off, bf16's 0.04`, in the words of the check; empty of what is as exact as
    the reference."""
    mine, theirs = (_distance(ladder, name) for name in (rung.name, ladder.reference))
    if not mine or not theirs or mine < FAR * theirs:
        return ""
    subject = ladder.case.first.check_meaning.partition(" ")[0]
    return f"{before}{subject} {mine:.2g} off, {name_of(ladder.reference)}'s {theirs:.1g}"


def _distance(ladder: Ladder, name: str) -> float:
    """Of its results from those of the check, in the worst launch; 0 where none is told."""
    return max((arm.check_error or 0.0 for arm in ladder.case.arms[name]), default=0.0)
