"""The two figures of README.md, made from committed records: `python -m gpulift.report.showcase`.

Each SVG holds what it shows as JSON in a description. Fonts differ from machine to machine, so that
a test holds these values, and not the drawing, against what the committed records give today.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, unescape

from matplotlib.figure import Figure

from gpulift import machine, text
from gpulift.analysis.model_records import committed_files, records_of_models
from gpulift.analysis.over_runs import as_model, with_models
from gpulift.analysis.summary import Summary, Worth, headline, summarise
from gpulift.entry import say
from gpulift.errors import USAGE, GpuliftError
from gpulift.records.read import Run, newest_run
from gpulift.report import plots
from gpulift.report.drawing import Drawing
from gpulift.runs import write_error

MODEL = "nvidia-h200"
PINNED = "transfer/pinned_copy"
AXIS = "median speedup over runs, 95 % interval over runs (above 1: faster)"
ONE_RUN = "one run"
DIGITS = 6
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


def committed(results: Path) -> Summary:
    """The model's run to show, of those that git has, with the figures over all of its runs.

    GpuliftError where there is none.
    """
    files = committed_files(results, MODEL)
    run = newest_run(sorted({file.parent for file in files}))
    if run is None:
        raise GpuliftError(f"{results}: there are no committed records of {MODEL}", USAGE)
    summary = summarise(run)
    techniques = {row.technique for row in summary.worths}
    records = records_of_models(files, [MODEL], techniques, say)
    return with_models([summary], records)[0]


def exhibits(of_run: Summary) -> list[Exhibit]:
    """What each technique is worth on the model, as far as known, and in one run copies by size:
    most sizes were measured in fewer than three."""
    run, summary = of_run.run, as_model(of_run)
    best = headline(summary)
    copies = of_run.worths_of(PINNED)
    if not copies:
        raise GpuliftError(f"{run.folder}: has no {PINNED} to show", USAGE)
    forest = partial(plots.forest, [plots.worth_row(row) for row in best], AXIS)
    sweep = partial(plots.sweep, copies, ONE_RUN)
    return [
        _exhibit("techniques", _of_techniques(summary, best), forest, run, best),
        _exhibit("pinned-copy", _of_copies(of_run, copies), sweep, run, copies),
    ]


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


def _exhibit(
    name: str, alt: str, draw: Callable[[], Figure], run: Run, rows: Sequence[Worth]
) -> Exhibit:
    values = {"alt": alt, "run": run.name, "rows": [_values(row) for row in rows]}
    return Exhibit(Drawing(name, alt, draw), values)


def _values(row: Worth) -> dict[str, Any]:
    one = row.speedup
    ends = {"speedup": one.value, "low": one.low, "high": one.high}
    rounded = {key: end and float(f"{end:.{DIGITS}g}") for key, end in ends.items()}
    name = f"{row.technique}/{row.case.case_id}/{row.arm}"
    return {"name": name, "launches": one.launches, **rounded}


def _of_techniques(summary: Summary, rows: Sequence[Worth]) -> str:
    best: dict[str, Worth] = {}
    for row in rows:
        best.setdefault(row.technique, row)
    said = [f"{one.technique} up to {text.ratio(one.speedup.value)}" for one in best.values()]
    return f"Best and worst case of each technique on {summary.run.machine}: {', '.join(said)}."


def _of_copies(summary: Summary, rows: Sequence[Worth]) -> str:
    arms: dict[str, list[float]] = {}
    for row in rows:
        arms.setdefault(row.arm, []).append(row.speedup.value)
    ends = "; ".join(
        f"{arm} from {text.ratio(min(found))} to {text.ratio(max(found))}"
        for arm, found in arms.items()
    )
    return (
        f"Copies by size on {summary.run.machine}, {ONE_RUN}, speedup over pageable memory: {ends}."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the figures; --out names another folder than results/figures."""
    results = machine.checkout_root() / "results"
    parser = argparse.ArgumentParser(description="Makes the figures of README.md anew.")
    parser.add_argument("--out", type=Path, default=results / "figures")
    folder: Path = parser.parse_args(arguments).out
    write(exhibits(committed(results)), folder)
    print(folder)


if __name__ == "__main__":
    main()
