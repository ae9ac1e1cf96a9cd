"""The two figures of README.md, made from committed records: `python -m gpulift.report.showcase`.

Each SVG holds what it shows as JSON in a description. Fonts differ from machine to machine, so that
a test holds these values, and not the drawing, against what the committed records give today.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from xml.sax.saxutils import escape, unescape

from matplotlib.figure import Figure

from gpulift import machine, text
from gpulift.analysis.model_records import committed_files, records_of_models
from gpulift.analysis.over_runs import as_model, with_models
from gpulift.analysis.summary import Summary, Worth, summarise
from gpulift.citing import errata
from gpulift.citing.errata import Erratum
from gpulift.entry import say
from gpulift.errors import USAGE, GpuliftError
from gpulift.records.read import cases_of
from gpulift.report import escaping, gains, planned, plots, views
from gpulift.report.doubts import doubts_of
from gpulift.report.drawing import Drawing
from gpulift.report.gains import AnswerLine, StepLine
from gpulift.runs import write_error

MODEL = "nvidia-h200"
PINNED = "transfer/pinned_copy"
DIGITS = 6
MOST_STEPS, MOST_BLOCKS = 8, 6  # techniques of a figure
SAID_STEPS = 3  # of them in the text that stands for it
AXIS = "speedup, 95 % interval, over runs where three are known (above 1: faster)"
ONE_RUN = "one run"
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


def committed(results: Path) -> list[Summary]:
    """All cases of the model that git has, each as one run has it, with the figure over all runs.

    GpuliftError where there is none.
    """
    files = committed_files(results, MODEL)
    found = cases_of(sorted({file.parent for file in files}))
    if not found:
        raise GpuliftError(f"{results}: there are no committed records of {MODEL}", USAGE)
    summaries = [summarise(run) for run in found]
    techniques = {row.technique for one in summaries for row in one.worths}
    return with_models(summaries, records_of_models(files, [MODEL], techniques, say))


def exhibits(summaries: Sequence[Summary], known: Sequence[Erratum] = ()) -> list[Exhibit]:
    """What is worth turning on, as the report's first screen has it, and in one run copies by size:
    most sizes were measured in fewer than three."""
    copies = [row for one in summaries for row in one.worths_of(PINNED)]
    run = summaries[0].run
    if not copies:
        raise GpuliftError(f"{run.folder}: has no {PINNED} to show", USAGE)
    copies.sort(key=lambda row: -row.speedup.value)
    of_models = [as_model(one) for one in summaries]
    anchors = escaping.anchors(views.technique_ids(of_models), "t")
    judged = [(one, ()) for one in of_models]
    view = views.machine_views(judged, anchors, doubts_of(of_models, known))[0]
    steps = _leading(view.steps, MOST_STEPS)
    blocks = _leading(view.lines, MOST_BLOCKS)
    rows = list(gains.in_order(steps, blocks))
    forest = partial(plots.forest, [_forest_row(row) for row in rows], AXIS)
    sweep = partial(plots.sweep, copies, ONE_RUN)
    return [
        _exhibit("techniques", _of_techniques(run.machine, steps, blocks), forest, rows),
        _exhibit("pinned-copy", _of_copies(run.machine, copies), sweep, copies),
    ]


def _forest_row(row: Worth) -> plots.ForestRow:
    made = plots.worth_row(row)
    basis = row.of_model.basis if row.of_model else ONE_RUN
    return replace(made, beside=f"{made.beside}, {basis}")


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
        raise GpuliftError(
            f"{file}: holds no values; python -m gpulift.report.showcase makes it anew"
        )
    values: Mapping[str, Any] = json.loads(unescape(found[1]))
    return values


def _exhibit(name: str, alt: str, draw: Callable[[], Figure], rows: Iterable[Worth]) -> Exhibit:
    values = {"alt": alt, "rows": [_values(row) for row in rows]}
    return Exhibit(Drawing(name, alt, draw), values)


def _values(row: Worth) -> dict[str, Any]:
    one = row.speedup
    ends = {"speedup": one.value, "low": one.low, "high": one.high}
    rounded = {key: end and float(f"{end:.{DIGITS}g}") for key, end in ends.items()}
    name = f"{row.technique}/{row.case.case_id}/{row.arm}"
    run = row.case.first.file.parent.name
    return {"name": name, "run": run, "launches": one.launches, **rounded}


def _of_techniques(name: str, steps: Sequence[StepLine], blocks: Sequence[AnswerLine]) -> str:
    said = [planned.step_words(one) for one in steps[:SAID_STEPS]]
    if not steps:
        said = [planned.line_words(one) for one in blocks]
    what = "Whole training steps, then building blocks" if steps else "Building blocks"
    return f"{what} on {name}: {'; '.join(said)}."


def _of_copies(name: str, rows: Sequence[Worth]) -> str:
    arms: dict[str, list[float]] = {}
    for row in rows:
        arms.setdefault(row.arm, []).append(row.speedup.value)
    ends = "; ".join(
        f"{arm} from {text.ratio(min(found))} to {text.ratio(max(found))}"
        for arm, found in arms.items()
    )
    return f"Copies by size on {name}, {ONE_RUN}, speedup over pageable memory: {ends}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the figures; --out names another folder than results/figures."""
    results = machine.checkout_root() / "results"
    parser = argparse.ArgumentParser(description="Makes the figures of README.md anew.")
    parser.add_argument("--out", type=Path, default=results / "figures")
    folder: Path = parser.parse_args(arguments).out
    known = errata.read_errata(results / errata.FILE)
    write(exhibits(committed(results), known), folder)
    print(folder)


if __name__ == "__main__":
    main()
