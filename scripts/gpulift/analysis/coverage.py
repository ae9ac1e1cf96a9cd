"""How often the interval for a new run holds one: `python -m gpulift.analysis.coverage`.

Each run of a case is left out in turn, and predicted by the others (`analysis.over_runs`). The
table, results/COVERAGE.md, is of the committed records of one model; a test holds it against them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gpulift import machine, stats, text
from gpulift.analysis.arms import baseline_of, is_ceiling
from gpulift.analysis.model_records import committed_files, records_of_models
from gpulift.analysis.over_runs import (
    ENOUGH_RUNS,
    ModelFigure,
    model_figure,
    over_runs,
    speedup_over_runs,
)
from gpulift.entry import say
from gpulift.errors import GpuliftError
from gpulift.records.files import stem_of
from gpulift.records.model import Cost, Record
from gpulift.runs import write_error
from gpulift.stats import Estimate

MODEL = "nvidia-h200"
TABLE = "COVERAGE.md"
PLANTED = "testing/"  # techniques that measure the gate, and nothing of a card
HEAD = """# Does an interval over runs hold a new run?

Of the committed records of {model}: each run of a case and arm, of those with {least} runs or
more, is left out in turn and predicted by the others. *New run* is the share of left-out runs
inside the 95 % interval for a new run; *one run's own* is the share of runs whose own 95 %
interval, over their launches, holds the median over runs. *Half width* is half the interval of
the model's figure, and of that for a new run, over the figure: medians over the rows. Rates stand
for ceilings, speedups for all others. [METHOD](../scripts/gpulift/METHOD.md#runs-of-a-model) says
how they are made; `python -m gpulift.analysis.coverage`, in `scripts/`, made this table of the
records {digest}.

| technique | rows | runs left out | new run | one run's own | half width, model | new run |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class LeftOut:
    """One case and arm: of how many of its runs each interval held, and its width."""

    runs: int
    held: int
    own_held: int
    half_width: float
    new_run_half_width: float


def left_out(figure: ModelFigure) -> LeftOut | None:
    """None where too few runs are left to predict one."""
    if len(figure.runs) <= ENOUGH_RUNS or figure.new_run is None:
        return None
    low, high = figure.new_run
    return LeftOut(
        runs=len(figure.runs),
        held=sum(_held(figure, number) for number in range(len(figure.runs))),
        own_held=sum(_holds(one.value, figure.value.value) for one in figure.runs),
        half_width=figure.value.half_width or 0.0,
        new_run_half_width=(high - low) / (2 * figure.value.value),
    )


def _held(figure: ModelFigure, number: int) -> bool:
    others = over_runs([*figure.runs[:number], *figure.runs[number + 1 :]])
    assert others.new_run is not None  # they are enough
    low, high = others.new_run
    return low <= figure.runs[number].value.value <= high


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
    if any(map(is_ceiling, records)):
        return model_figure(records, [name], lambda launches: _rate(launches, name))
    baseline = next((one.name for one in map(baseline_of, records) if one is not None), name)
    return None if name == baseline else speedup_over_runs(records, name, baseline)


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
        _share(sum(one.own_held for one in found), runs),
        _width(one.half_width for one in found),
        _width(one.new_run_half_width for one in found),
    )
    return f"| {' | '.join(cells)} |\n"


def _width(widths: Iterable[float]) -> str:
    return f"{text.digits(100 * median(widths), 2)} %"


def _share(held: int, runs: int) -> str:
    return f"{100 * held / runs:.1f} %"


def table(files: Mapping[Path, str]) -> str:
    """The content of COVERAGE.md, of the record files of the model with their hashes."""
    every: list[LeftOut] = []
    lines = []
    for stem in sorted({stem_of(file) for file in files}):
        technique = stem.replace(".", "/", 1)
        if technique.startswith(PLANTED):
            continue
        made, found = row(technique, records_of_models(files, [MODEL], [technique], say))
        lines.append(made)
        every += found
    head = HEAD.format(model=MODEL, least=ENOUGH_RUNS + 1, digest=digest(files))
    return head + "".join(lines) + line("all", every)


def digest(files: Mapping[Path, str]) -> str:
    """Of the contents of all files, which git has hashed."""
    return hashlib.sha256("".join(sorted(files.values())).encode("ascii")).hexdigest()[:12]


def _main() -> None:
    results = machine.checkout_root() / "results"
    content = table(committed_files(results, MODEL))
    try:
        (results / TABLE).write_text(content, encoding="utf-8")
    except OSError as error:
        raise write_error(results / TABLE, error) from None


if __name__ == "__main__":
    try:
        _main()
    except GpuliftError as error:
        raise SystemExit(str(error)) from None
