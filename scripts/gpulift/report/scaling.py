"""What several GPUs are worth: how a step scales over them, and what of its exchange shows.

Each figure is of all runs of a machine: two and four GPUs are often measured in runs of their own.
Scaling is of arms of a rank per GPU against a baseline of one, in cases whose axis `gpus` says how
many; exposed communication is of arms that tell how long their step is without the exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import median

from gpulift.analysis import arms
from gpulift.analysis.arms import EXPOSED_S, WITHOUT_S, tells
from gpulift.analysis.facts import Facts
from gpulift.analysis.summary import Worth
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm
from gpulift.report import escaping, plots
from gpulift.report.drawing import Drawing
from gpulift.report.machine_views import MachineView
from gpulift.report.plots import Bar
from gpulift.verdicts.cases import Case

GPUS = "gpus"
MOST_PANELS = 8
MOST_ROWS = 32


def drawings(machines: Sequence[MachineView]) -> list[Drawing]:
    """The scaling of each machine, then the exposed communication of each."""
    first = [view for view in machines if view.main]
    return [one for kind in (_scaling, _exposed) for view in first for one in kind(view)]


def scales(row: Worth) -> bool:
    """Whether an arm on as many GPUs as its case says is held against one process, by items."""
    ranks, alone = (row.case.arms[name][0].ranks for name in (row.arm, row.baseline))
    counted = all(map(_has_items, (row.facts, row.baseline_facts)))
    return counted and ranks > alone == 1 and row.case.first.case.get(GPUS) == ranks


def _has_items(facts: Facts) -> bool:
    return facts.cost is not None and facts.cost.items > 0


def _ranks(row: Worth) -> int:
    return row.case.arms[row.arm][0].ranks


def _scaling(view: MachineView) -> Iterator[Drawing]:
    """A figure for each technique, a panel for each value of the other axes."""
    techniques: dict[str, dict[str, list[Worth]]] = {}
    for row in _in_order(view):
        panels = techniques.setdefault(row.technique, {})
        panels.setdefault(_others(row.case), []).append(row)
    for number, (technique, panels) in enumerate(techniques.items()):
        shown = dict(islice(panels.items(), MOST_PANELS))
        said = "; ".join(_panel_words(title, rows) for title, rows in shown.items())
        baseline = escaping.brief(next(iter(shown.values()))[0].baseline)
        alt = f"{_where(technique, view)}, items a second against {baseline} by GPUs: {said}."
        alt += _left_out(len(panels) - len(shown), "panel")
        rows = [row for members in shown.values() for row in members]
        draw = partial(plots.sweep, rows, GPUS, scaling=True)
        yield Drawing(f"scaling-{view.number}-{number}", alt, draw)


def _in_order(view: MachineView) -> list[Worth]:
    """The rows that scale as their cases and arms came, the fewest GPUs first; of what several
    runs have, the first run's."""
    rows: dict[tuple[str, str, str], Worth] = {}
    for run in view.group:
        found = {row.key: row for row in run.summary.worths if scales(row)}
        for case in run.summary.cases:
            for key in ((case.technique, case.case_id, arm.name) for arm in case.first.arms):
                if key in found:
                    rows.setdefault(key, found[key])
    return sorted(rows.values(), key=_ranks)


def _others(case: Case) -> str:
    """The values of the axes beside the number of GPUs: `gpt2, weak`."""
    axes = (axis for axis in case.case_id.split("/") if not axis.startswith(f"{GPUS}:"))
    return text.case_label("/".join(axes), short=True)


def _panel_words(title: str, rows: Sequence[Worth]) -> str:
    """`gpt2, weak: ddp 1.89× on 2 GPUs (0.94 of n), 3.70× on 4 GPUs (0.92 of n)`."""
    said = (
        f"{escaping.brief(arm)} {', '.join(map(_point_words, members))}"
        for arm, members in _by_arm(rows).items()
    )
    return f"{escaping.brief(title)}: {', '.join(said)}" if title else ", ".join(said)


def _point_words(row: Worth) -> str:
    gain, ranks = row.speedup.value, _ranks(row)
    return f"{text.ratio(gain)} on {ranks} GPUs ({gain / ranks:.2f} of n)"


def _by_arm(rows: Iterable[Worth]) -> dict[str, list[Worth]]:
    found: dict[str, list[Worth]] = {}
    for row in rows:
        found.setdefault(row.arm, []).append(row)
    return found


@dataclass(frozen=True)
class _Exposed:
    """What of an arm's steps nothing hides, over its launches."""

    label: str
    median_s: float
    shares: Sequence[float]

    @property
    def words(self) -> str:
        """`1.30 ms, 3.2 %`."""
        seconds = arms.metric(EXPOSED_S, self.median_s) if self.median_s else "0 s"
        return f"{seconds}, {text.percent(median(self.shares))}"

    @property
    def row(self) -> Bar:
        """In percent, from the lowest launch to the highest where there are several."""
        count = len(self.shares)
        low, high = (min(self.shares), max(self.shares)) if count > 1 else (None, None)
        estimate = Estimate(median(self.shares), low, high, count).scaled(100)
        return Bar(self.label, estimate, self.words)


def _exposed(view: MachineView) -> Iterator[Drawing]:
    """A figure for each technique, case by case."""
    techniques: dict[str, list[_Exposed]] = {}
    withheld: Counter[str] = Counter()
    cases: dict[tuple[str, str], Case] = {}
    for case in (case for run in view.group for case in run.summary.cases):
        cases.setdefault((case.technique, case.case_id), case)
    for case in cases.values():
        for name, launches in case.arms.items():
            if found := _exposed_of(case, name):
                techniques.setdefault(case.technique, []).append(found)
            elif any(EXPOSED_S in one.metrics and not tells(one, EXPOSED_S) for one in launches):
                withheld[case.technique] += 1
    for number, (technique, every) in enumerate(techniques.items()):
        shown = every[:MOST_ROWS]
        said = "; ".join(f"{escaping.brief(one.label)} {one.words}" for one in shown)
        alt = (
            f"{_where(technique, view)}, exposed communication (median launch), of a step: {said}."
        )
        alt += _left_out(len(every) - len(shown), "arm")
        if withheld[technique]:
            alt += f" Withheld of {withheld[technique]} more, whose parts miss the timed step."
        rows = [one.row for one in shown]
        draw = partial(plots.bars, rows, _exposed_axis(rows), most=1.0)
        yield Drawing(f"exposed-{view.number}-{number}", alt, draw)


def _exposed_of(case: Case, name: str) -> _Exposed | None:
    """Of the launches in which it fits the windows; None where it does in none."""
    launches = [one for one in case.arms[name] if one.metrics.get(WITHOUT_S, 0.0) > 0]
    known = [one for one in launches if tells(one, EXPOSED_S)]
    if not known:
        return None
    label = f"{text.case_label(case.case_id, short=True)}: {name}"
    exposed_s = median(one.metrics[EXPOSED_S] for one in known)
    return _Exposed(label, exposed_s, [*map(_share, known)])


def _share(arm: Arm) -> float:
    exposed_s = arm.metrics[EXPOSED_S]
    return exposed_s / (exposed_s + arm.metrics[WITHOUT_S])


def _exposed_axis(rows: Sequence[Bar]) -> str:
    """Below 0 the step took less with the exchange."""
    counted = plots.launches(row.estimate for row in rows)
    if any(row.estimate.launches > 1 for row in rows):
        counted = f"bars: median, lines: lowest to highest launch, {counted}"
    return f"exposed communication, % of the step (less is better)\n{counted}"


def _left_out(count: int, what: str) -> str:
    return f" {count} more {what}{'s' if count > 1 else ''}: see the table." if count > 0 else ""


def _where(technique: str, view: MachineView) -> str:
    return f"{escaping.brief(technique)} on {escaping.brief(view.summary.run.machine)}"
