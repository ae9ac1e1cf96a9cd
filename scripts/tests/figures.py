"""What tests of the report's figures share: summaries of made-up records, and hostile names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from gpulift.analysis.analyse import Analysis, Beside, JudgedRun, analyse, machines_of, read_beside
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.reference import Reference, find_reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.report import escaping, page, render, site
from gpulift.report import machine_views as of_machines
from gpulift.report.figures import Figure
from gpulift.report.machine_views import MachineView
from gpulift.verdicts.row import Table
from tests import sample
from tests.conftest import CHECKOUT

HOSTILE = (
    "$x_{",
    r"\frac{1}{2}$$",
    "<script>alert(1)</script>",
    "\"'/><b>&amp;",
    "\u202edesrever\u2066",
    "\x1b[31mred\x00\n",
    "long" * 2500,
    "漢字 😀",
)


def summary(records: list[sample.Json], folder: str = "2026-11-21-abc1234") -> Summary:
    """The summary of made-up records, with the committed reference of their model."""
    run = Run(Path(folder), tuple(read_record(one) for one in records))
    return summarise(run, reference(run))


def analysed(summaries: Sequence[Summary], results: Path | None = None) -> Analysis:
    """What they say, with nothing beside them, or with what a folder of results holds."""
    models = [one.run.records[0].context.slug for one in summaries]
    return analyse(summaries, read_beside(results, models) if results else Beside())


def undrawn(analysis: Analysis, out: Path | None = None, changes: Sequence[Table] = ()) -> str:
    """The pages, one after the other; report.md goes to the folder, if one is named."""
    contents, blank = _blank(analysis, changes)
    if out is not None:
        out.mkdir(exist_ok=True)
        (out / "report.md").write_text(page.markdown(contents, blank), encoding="utf-8")
    return "".join(site.pages(contents.of(blank)).values())


def section(name: str, **values: object) -> str:
    """A part of a page alone, of these values, in whose figures nothing is drawn."""

    class Blank(dict[str, Figure]):
        def __missing__(self, name: str) -> Figure:
            return Figure(name, "", Markup(""))

    known = {"figures": Blank(), "prices": None, "doubts": NO_DOUBTS, **values}
    return render._environment(html=True).get_template(f"{name}.html.j2").render(known)


def undrawn_pages(analysis: Analysis) -> dict[str, str]:
    """The pages by their file."""
    contents, blank = _blank(analysis)
    return site.pages(contents.of(blank))


def _blank(
    analysis: Analysis, changes: Sequence[Table] = ()
) -> tuple[page.Contents, dict[str, Figure]]:
    """What a report has, and figures in which nothing is drawn."""
    contents = page.contents_of(analysis, changes)
    return contents, {one.name: Figure(one.name, one.alt, Markup("")) for one in contents.drawings}


def written(out: Path) -> str:
    """The pages of a report in a folder, one after the other, that which begins first."""
    files = [out / site.FRONT, *sorted((out / site.FOLDER).glob("*.html"))]
    return "".join(file.read_text(encoding="utf-8") for file in files)


def machine_views(summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS) -> list[MachineView]:
    """Of these runs, without checks."""
    anchors = escaping.anchors(of_machines.technique_ids(summaries), "t")
    runs = [JudgedRun(one) for one in summaries]
    return of_machines.machine_views(runs, machines_of(summaries, doubts), anchors)


def reference(run: Run) -> Reference | None:
    """The committed one of the run's model."""
    return find_reference(CHECKOUT / "results", run.records[0].context.slug)


def on_gpu(name: str, card: str) -> sample.Json:
    """The context of a card of another model."""
    return sample.gpu_context(gpu={"name": name, "card": card})
