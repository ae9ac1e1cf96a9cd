"""The report: its HTML pages, the answer in Markdown and the figures as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.analysis.analyse import Analysis
from gpulift.analysis.summary import Summary
from gpulift.ground.errors import GpuliftError, write_error
from gpulift.ground.whole import write_whole
from gpulift.report import (
    beside,
    claimed,
    error_rates,
    escaping,
    feeding,
    figures,
    ladder,
    models,
    planned,
    render,
    scaling,
    site,
    topology,
)
from gpulift.report.changes import machine_of
from gpulift.report.drawing import Drawing
from gpulift.report.limits import limits
from gpulift.report.machine_views import in_order, machine_views, technique_ids
from gpulift.report.settings import settings
from gpulift.report.site import FRONT
from gpulift.report.technique_views import technique_views
from gpulift.verdicts.row import Table

MOST_LETTERS = 60_000  # of Markdown; GitHub takes 65,536 in a comment
NO_FILES: Mapping[Path, str] = {}
NO_TABLES: Mapping[str, bytes] = {}


@dataclass(frozen=True)
class Contents:
    """What a report has: values for the templates, by name, and what is to be drawn for it."""

    values: Mapping[str, object]
    drawings: tuple[Drawing, ...]

    def of(self, drawn: Mapping[str, figures.Figure]) -> dict[str, object]:
        """The values, with the figures that were drawn."""
        return {**self.values, "figures": drawn}


def write(
    analysis: Analysis,
    out: Path,
    changes: Sequence[Table] = (),
    tables: Mapping[str, bytes] = NO_TABLES,
    png: bool = False,
) -> Path:
    """Writes the report of machines and changes into a folder: linked pages, which offer these
    tables to download by their file names, and figures as `png`, too, for slides. Returns the path
    of the page that begins."""
    contents = contents_of(analysis, changes, _files_near(analysis.summaries, out), tuple(tables))

    def made(drawn: Mapping[str, figures.Figure]) -> tuple[str, dict[str, str]]:
        return markdown(contents, drawn), site.pages(contents.of(drawn))

    for name, content in tables.items():
        write_whole(content, out / name)
    return save(out, contents.drawings, made, png)


def save(
    out: Path,
    drawings: Sequence[Drawing],
    made: Callable[[Mapping[str, figures.Figure]], tuple[str, Mapping[str, str]]],
    png: bool = False,
) -> Path:
    """Writes figures, and of these what is made with them: a page's Markdown and the pages by name,
    the one that begins last; returns its path. Refuses to write over what no report of ours is."""
    text, front = out / "report.md", out / FRONT
    for file in (text, front):
        if file.is_file() and not figures.are_ours(out / "figures"):
            raise GpuliftError(
                f"{file}: is there already and no report of ours; name another --out"
            )
    try:
        drawn = figures.drawn(drawings, out / "figures", png)
        markdown_text, pages = made(drawn)
        further = {name: page for name, page in pages.items() if name != FRONT}
        figures.begin(out / site.FOLDER, [Path(name).name for name in further])
    except OSError as error:
        raise write_error(out, error) from None
    for name, page in further.items():
        write_whole(page, out / name, lasting=False)
    write_whole(markdown_text, text)
    write_whole(pages[FRONT], front)
    return front


def contents_of(
    analysis: Analysis,
    changes: Sequence[Table] = (),
    files: Mapping[Path, str] = NO_FILES,
    tables: Sequence[str] = (),
) -> Contents:
    """All of a report but its figures. `files` has links to files of records, of those that the
    report may link, `tables` names of those to download. Raises GpuliftError where there is
    nothing to report."""
    summaries = analysis.summaries
    if not summaries and not changes:
        raise GpuliftError("there is nothing to report")
    doubts = analysis.doubts
    anchors = escaping.anchors(technique_ids(summaries), "t")
    machines = machine_views(analysis.runs, analysis.machines, anchors)
    anchors = in_order(anchors, machines)
    slugs = [one.run.records[0].context.slug for one in summaries]
    models_here = [*slugs, *map(machine_of, changes)]
    certificates = error_rates.views(models_here, analysis.certificates)
    models_beside = models.views(summaries, analysis.references, list(anchors))
    most = limits(sum(len(one.run.records) for one in summaries))
    compared = [one.figure for one in models_beside if one.figure]
    several = scaling.drawings(machines)
    scaled = several[: most.sweeps]
    fed = feeding.drawings(machines[: most.machines])
    ladders = ladder.views(machines)
    drawings = [
        *(one.drawing for one in ladders if one.machine in machines[: most.machines]),
        *planned.of_machines(machines, most),
        *planned.of_techniques(machines, anchors, most),
        *scaled,
        *fed,
        *(one.curve for one in certificates),
        *compared[: most.models],
        planned.of_duets(analysis.duets),
    ]
    claims = claimed.claims_views(analysis.claims)
    values: dict[str, object] = {
        "title": _title(summaries, changes),
        "names": [one.run.machine for one in summaries],
        "machines": machines,
        "ladders": ladders,
        "climbed": beside.ladders((one.machine.summary.run.machine, one.ladder) for one in ladders),
        "settings": settings(machines),
        "changes": list(changes),
        "certificates": certificates,
        "topology": topology.views(analysis.runs),
        "beside": analysis.beside,
        "models": models_beside,
        "duets": analysis.duets,
        "doubts": doubts,
        "scaled": scaled,
        "fed": fed,
        "undrawn": planned.left_out(machines, anchors, len(compared), len(several), most),
        "most": most,
        "files": files,
        "tables": tables,
        "on_page": {record.id for one in summaries for record in one.run.records},
        "prices": analysis.prices,
        "claims": claims,
        "techniques": technique_views(machines, anchors, claims, most.strips, doubts),
    }
    return Contents(values, tuple(drawing for drawing in drawings if drawing))


def markdown(contents: Contents, drawn: Mapping[str, figures.Figure]) -> str:
    """The answer and the verdicts, which name figures that were drawn; a comment may hold them."""
    return cut(render.markdown(contents.of(drawn), "report.md.j2"))


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """The first lines of a text that is too long, and how many more there are."""
    if len(text) <= most:
        return text
    kept = text[:most].rpartition("\n")[0]
    return f"{kept}\n\n*{text.count(chr(10), len(kept) + 1)} more lines: see the page.*\n"


def _title(summaries: Sequence[Summary], changes: Sequence[Table]) -> str:
    if not summaries:
        return changes[0].title
    return " beside ".join(dict.fromkeys(one.run.machine for one in summaries))


def _files_near(summaries: Sequence[Summary], out: Path) -> dict[Path, str]:
    """Links from a report to files of records that stand in the same folder as it, or below: where
    one goes, the other goes, too. A link to any other place would tell names of its owner's."""
    above = out.absolute().parent
    files = {record.file for one in summaries for record in one.run.records}
    near = {file for file in files if above in file.absolute().parents}
    return {file: f"../{file.absolute().relative_to(above).as_posix()}" for file in sorted(near)}
