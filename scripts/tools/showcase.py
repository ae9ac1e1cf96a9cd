"""The figures of README.md, made from committed records: `python -m tools.showcase`.

Each SVG holds what it shows as JSON in a description. Fonts differ from machine to machine, so that
a test holds these values, and not the drawing, against what the committed records give today.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from xml.sax.saxutils import escape, unescape

from gpulift.analysis import gains
from gpulift.analysis.analyse import JudgedRun, machines_of
from gpulift.analysis.choice import NOTHING_KNOWN, Choice, cases_of, choice_of
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.gains import AnswerLine, StepLine
from gpulift.analysis.ladder import Ladder, ladders_of
from gpulift.analysis.model_records import committed_files, records_of_models
from gpulift.analysis.models import as_model, with_models
from gpulift.analysis.standing import LADDER
from gpulift.analysis.summary import Summary, Worth, summarise
from gpulift.engine import machine
from gpulift.ground.entry import say
from gpulift.ground.errors import USAGE, GpuliftError, write_error
from gpulift.ground.estimate import Estimate
from gpulift.records.files import stem_of
from gpulift.report import escaping, feeding, ladder, planned, plots, views
from gpulift.report.drawing import Drawing

MODEL = "nvidia-h200"
LADDER_MODELS = (MODEL, "nvidia-h100-80gb-hbm3")  # the first that has records
LADDER_OF = "Llama 1B"
FED, FED_CASE = "input/pipeline", "model:resnet50_256/cores:all"
DIGITS = 6
MOST_STEPS, MOST_BLOCKS = 8, 6  # techniques of a figure
SAID_STEPS = 2  # of them in the text that stands for it
AXIS = "speedup (above 1: faster), 95 % interval\nover runs where several are known"
Line = TypeVar("Line", StepLine, AnswerLine)
DATA = re.compile(r"<desc>(.*?)</desc>", re.DOTALL)


@dataclass(frozen=True)
class Exhibit:
    """A figure, and the values that it shows."""

    drawing: Drawing
    values: Mapping[str, Any]

    @property
    def file_name(self) -> str:
        """Below results/figures."""
        return f"{self.drawing.name}.svg"


def committed(results: Path, model: str = MODEL) -> list[Summary]:
    """All cases of the model that git has, each as one run has it, with the figure over all runs.

    GpuliftError where there is none.
    """
    files = committed_files(results, model)
    found = cases_of(results, sorted({file.parent for file in files}))
    if not found:
        raise GpuliftError(f"{results}: there are no committed records of {model}", USAGE)
    summaries = [summarise(run) for run in found]
    techniques = {row.technique for one in summaries for row in one.worths}
    return with_models(summaries, records_of_models(files, [model], techniques, say))


def exhibits(results: Path) -> list[Exhibit]:
    """All of them: what is worth turning on, and where it was measured, in which order and how
    fast a step is fed."""
    known = choice_of(results)
    climbs = (climbed(runs_of(LADDER, results, model), known) for model in LADDER_MODELS)
    loaders = (fed(runs_of(FED, results, model)) for model in LADDER_MODELS)
    firsts = (next(filter(None, each), None) for each in (climbs, loaders))
    return [steps_and_blocks(committed(results), known), *filter(None, firsts)]


def climbed(summaries: Sequence[Summary], known: Choice = NOTHING_KNOWN) -> Exhibit | None:
    """What each setting brings on top of those before it; None where no run has all of it."""
    every = ladders_of(summaries, doubts_of(summaries, known.errata, known.today))
    one = next((one for one in every if one.model == LADDER_OF), None)
    if one is None:
        return None
    drawing = ladder.drawing("ladder", one)
    return Exhibit(drawing, {"alt": drawing.alt, "rows": list(_rungs(one))})


def _rungs(one: Ladder) -> Iterator[dict[str, Any]]:
    for rung in one.rungs:
        name = f"{one.case.technique}/{one.case.case_id}/{rung.name}"
        yield {"name": name, "run": one.run, **_ends(rung.per_s)}


def fed(summaries: Sequence[Summary]) -> Exhibit | None:
    """How fast each setting of a loader feeds a step; None where no run has it."""
    having = [one for one in summaries if any(case.case_id == FED_CASE for case in one.cases)]
    if not having:
        return None
    drawing, rungs = next(feeding.ladders(_views(having[-1:])[0]))
    run = having[-1].run.name
    rows = [{"name": rung.name, "run": run, **_ends(rung.per_s)} for rung in rungs]
    return Exhibit(replace(drawing, name="feeding"), {"alt": drawing.alt, "rows": rows})


def runs_of(technique: str, results: Path, model: str) -> list[Summary]:
    """The committed runs of the model that have the technique."""
    stem = technique.replace("/", ".")
    files = [file for file in committed_files(results, model) if stem_of(file) == stem]
    folders = sorted({file.parent for file in files})
    return [summarise(run) for run in cases_of(results, folders, {stem})]


def steps_and_blocks(summaries: Sequence[Summary], known: Choice = NOTHING_KNOWN) -> Exhibit:
    """What is worth turning on, as the report's first screen has it."""
    view = _views([as_model(one) for one in summaries], known)[0]
    steps = _leading(view.steps, MOST_STEPS)
    blocks = _leading(view.lines, MOST_BLOCKS)
    rows = list(gains.in_order(steps, blocks))
    alt = _of_techniques(summaries[0].run.machine, steps, blocks)
    draw = partial(plots.forest, [plots.worth_row(row) for row in rows], AXIS)
    return Exhibit(
        Drawing("techniques", alt, draw), {"alt": alt, "rows": [_values(row) for row in rows]}
    )


def _views(summaries: Sequence[Summary], known: Choice = NOTHING_KNOWN) -> list[views.MachineView]:
    anchors = escaping.anchors(views.technique_ids(summaries), "t")
    runs = [JudgedRun(one) for one in summaries]
    doubts = doubts_of(summaries, known.errata, known.today)
    return views.machine_views(runs, machines_of(summaries, doubts), anchors)


def _leading(lines: Sequence[Line], most: int) -> list[Line]:
    """The first ones that show an effect and are not in doubt."""
    return [one for one in lines if one.matters and not one.doubted][:most]


def write(found: Sequence[Exhibit], folder: Path) -> None:
    """Writes the SVG files with their values."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            file = folder / one.file_name
            one.drawing.write_svg(file)
            head, body = file.read_text(encoding="utf-8").split("<title>", 1)
            said = escape(json.dumps(one.values, indent=1))
            file.write_text(f"{head}<desc>{said}</desc>\n<title>{body}", encoding="utf-8")
    except OSError as error:
        raise write_error(folder, error) from None


def values_in(file: Path) -> Mapping[str, Any]:
    """The values that a written figure shows."""
    found = DATA.search(file.read_text(encoding="utf-8"))
    if found is None:
        raise GpuliftError(f"{file}: holds no values; python -m tools.showcase makes it anew")
    values: Mapping[str, Any] = json.loads(unescape(found[1]))
    return values


def _values(row: Worth) -> dict[str, Any]:
    name = f"{row.technique}/{row.case.case_id}/{row.arm}"
    return {"name": name, "run": row.case.first.file.parent.name, **_ends(row.speedup)}


def _ends(one: Estimate) -> dict[str, Any]:
    ends = {"value": one.value, "low": one.low, "high": one.high}
    rounded = {
        key: float(f"{end:.{DIGITS}g}") for key, end in ends.items() if end is not None
    }  # one launch has no interval
    return {"launches": one.launches, **rounded}


def _of_techniques(name: str, steps: Sequence[StepLine], blocks: Sequence[AnswerLine]) -> str:
    said = [planned.step_words(one) for one in steps[:SAID_STEPS]]
    if not steps:
        said = [planned.line_words(one) for one in blocks]
    what = "Whole training steps, then building blocks" if steps else "Building blocks"
    return f"{what} on {name}: {'; '.join(said)}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the figures; --out names another folder than results/figures."""
    results = machine.checkout_root() / "results"
    parser = argparse.ArgumentParser(description="Makes the figures of README.md anew.")
    parser.add_argument("--out", type=Path, default=results / "figures")
    folder: Path = parser.parse_args(arguments).out
    write(exhibits(results), folder)
    print(folder)


if __name__ == "__main__":
    main()
