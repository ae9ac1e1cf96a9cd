"""How often the interval for a new run holds one: `python -m tools.coverage`.

Each run of a case is left out in turn, and predicted by the others (`analysis.over_runs`). The
table, certificates/coverage.md, is of the committed records of one model; a test holds it against
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gpulift.analysis.arms import baseline_of, is_ceiling
from gpulift.analysis.model_records import committed_files, records_of_models
from gpulift.analysis.over_runs import (
    ENOUGH_RUNS,
    UNTOLD_FILES,
    UNTOLD_KERNELS,
    ModelFigure,
    RunFigure,
    figures_of,
    over_runs,
    speedup,
)
from gpulift.ground import text
from gpulift.ground.entry import say
from gpulift.ground.estimate import Estimate
from gpulift.records.files import stem_of
from gpulift.records.model import Cost, Record
from gpulift.verdicts import stats
from tools.page import write_page

MODEL = "nvidia-h200"
TABLE = "certificates/coverage.md"
UNTOLD = {UNTOLD_FILES, UNTOLD_KERNELS}
PLANTED = "testing/"  # techniques that measure the gate, and nothing of a card
HEAD = """# Does an interval over runs hold a new run?

Of the committed records of {model}: each run of a case and arm, of those with {least} runs or
more, is left out in turn and predicted by the others. *New run* is the share of left-out runs
inside the 95 % interval for a new run; *by earlier ones* is that of runs which those before them
predict, {enough} or more, and nothing later; *one run's own* is the share of runs whose own 95 %
interval, over their launches, holds the median over runs. *Half width* is half the interval of
the model's figure, and of that for a new run, over the figure: medians over the rows. *Untold* are
rows whose records do not tell all files of the arms, which are not known to be equal; *split*
are those whose later runs lie apart from the earlier ones. Rates stand
for ceilings, speedups for all others.
[METHOD](../../scripts/gpulift/METHOD.md#runs-of-a-model) says
how they are made; `python -m tools.coverage`, in `scripts/`, made this table of the
records {digest}.

"""
COLUMNS = (
    *("technique", "rows", "runs left out", "new run", "by earlier ones", "one run's own"),
    *("half width, model", "new run", "untold", "split"),
)


@dataclass(frozen=True)
class LeftOut:
    """One case and arm: of how many of its runs each interval held, and its width; what is in
    doubt."""

    runs: int
    held: int
    later: int  # runs with enough before them to predict them
    later_held: int
    own_held: int
    half_width: float
    new_run_half_width: float
    untold: bool = False
    split: bool = False


def left_out(figure: ModelFigure) -> LeftOut | None:
    """None where too few runs are left to predict one."""
    if len(figure.runs) <= ENOUGH_RUNS or figure.new_run is None:
        return None
    low, high = figure.new_run
    return LeftOut(
        runs=len(figure.runs),
        held=sum(
            _held([*figure.runs[:number], *figure.runs[number + 1 :]], one)
            for number, one in enumerate(figure.runs)
        ),
        later=len(figure.runs) - ENOUGH_RUNS,
        later_held=sum(
            _held(figure.runs[:number], figure.runs[number])
            for number in range(ENOUGH_RUNS, len(figure.runs))
        ),
        own_held=sum(_holds(one.value, figure.value.value) for one in figure.runs),
        half_width=figure.value.half_width or 0.0,
        new_run_half_width=(high - low) / (2 * figure.value.value),
        untold=bool(UNTOLD & {*figure.doubts}),
        split=bool({*figure.doubts} - UNTOLD),
    )


def _held(others: Sequence[RunFigure], one: RunFigure) -> bool:
    predicted = over_runs(others).new_run
    assert predicted is not None  # they are enough
    low, high = predicted
    return low <= one.value.value <= high


def _holds(one: Estimate, value: float) -> bool:
    return one.low is not None and one.high is not None and one.low <= value <= one.high


def figures(records: Iterable[Record]) -> Iterator[ModelFigure]:
    """Of every case and arm of a technique on a model: speedups, of a ceiling's arms rates."""
    cases: dict[str, list[Record]] = {}
    for record in records:
        cases.setdefault(record.case_id, []).append(record)
    for found in cases.values():
        names = dict.fromkeys(arm.name for record in found for arm in record.arms)
        for figure in (_figure(found, name) for name in names):
            if figure is not None:
                yield figure


def _figure(records: Sequence[Record], name: str) -> ModelFigure | None:
    """Of the kind of work of which there are enough runs, if there is one."""
    if any(map(is_ceiling, records)):
        found = figures_of(records, [name], lambda launches: _rate(launches, name))
    else:
        baseline = next((one.name for one in map(baseline_of, records) if one is not None), name)
        pair = (name, baseline)
        found = figures_of(records, pair, speedup(*pair)) if name != baseline else []
    return max(found, key=lambda one: (one.of_model, one.decides), default=None)


def _rate(launches: Sequence[Record], name: str) -> Estimate | None:
    """Work per second; the time of an item where a step moves and computes nothing."""
    time = stats.step_time(launches, name)
    if time is None:
        return None
    cost = stats.measured_arms(launches, name)[0].cost or Cost()
    work = stats.work_for_roof(cost)
    return stats.rate(time, work) if work > 0 else time.scaled(1 / (cost.items or 1))


def row(technique: str, records: Iterable[Record]) -> tuple[str, list[LeftOut]]:
    """The line of a technique, and what is behind it."""
    found = [one for figure in figures(records) if (one := left_out(figure))]
    return line(technique, found), found


def line(name: str, found: Sequence[LeftOut]) -> str:
    """A row of the table; empty where no case has enough runs."""
    if not found:
        return ""
    runs = sum(one.runs for one in found)
    cells = (
        name,
        f"{len(found)}",
        f"{runs}",
        _share(sum(one.held for one in found), runs),
        _share(sum(one.later_held for one in found), sum(one.later for one in found)),
        _share(sum(one.own_held for one in found), runs),
        _width(one.half_width for one in found),
        _width(one.new_run_half_width for one in found),
        f"{sum(one.untold for one in found)}",
        f"{sum(one.split for one in found)}",
    )
    return f"| {' | '.join(cells)} |\n"


def _width(widths: Iterable[float]) -> str:
    return f"{text.digits(100 * median(widths), 2)} %"


def _share(held: int, runs: int) -> str:
    return f"{100 * held / runs:.1f} %"


def table(files: Mapping[Path, str]) -> str:
    """The content of the table, of the record files of the model with their hashes."""
    every: list[LeftOut] = []
    lines = []
    for stem in sorted({stem_of(file) for file in files}):
        technique = stem.replace(".", "/", 1)
        if technique.startswith(PLANTED):
            continue
        made, found = row(technique, records_of_models(files, [MODEL], [technique], say))
        lines.append(made)
        every += found
    head = HEAD.format(model=MODEL, least=ENOUGH_RUNS + 1, enough=ENOUGH_RUNS, digest=digest(files))
    head += f"| {' | '.join(COLUMNS)} |\n| ---{' | ---:' * (len(COLUMNS) - 1)} |\n"
    return head + "".join(lines) + line("all", every)


def digest(files: Mapping[Path, str]) -> str:
    """Of the contents of all files, which git has hashed."""
    return hashlib.sha256("".join(sorted(files.values())).encode("ascii")).hexdigest()[:12]


if __name__ == "__main__":
    write_page(TABLE, lambda results: table(committed_files(results, MODEL)))
