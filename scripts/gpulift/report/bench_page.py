"""The page of one script, a screen: the fastest, the arms, the conditions. No roofs, no claims, and
nothing of what other machines reached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from gpulift.analysis import conditions
from gpulift.analysis.summary import Summary
from gpulift.engine.again import command_again
from gpulift.records.model import Record
from gpulift.report import bench, page, render, site, strips, tables
from gpulift.verdicts.cases import Case


def write(summary: Summary, out: Path) -> Path:
    """Writes the page and the same in Markdown into a folder; returns the page's path."""
    shown = bench.rows(summary)
    drawn = [(case, strip) for case in bench.cases(summary) if (strip := _strip(case))]
    values = {
        "title": bench.title(summary),
        "columns": bench.columns(shown),
        "rows": shown,
        "numbers": bench.NUMBERS,
        "sentences": list(bench.sentences(summary)),
        "caveats": list(bench.caveats(summary)),
        "problems": tables.group_problems((*summary.skipped, *summary.broken)),
        "conditions": list(_conditions(summary)),
        "strips": drawn,
        "records": summary.run.records,
    }
    front = render.page(values, "bench.html.j2")
    written = (render.markdown(values, "bench.md.j2"), {site.FRONT: front})
    return page.save(out, (), lambda _: written)


def _conditions(summary: Summary) -> Iterator[tuple[str, str]]:
    first = summary.run.records[0]
    context = first.context
    yield "measured", f"{first.began_at}, {_launches(first)}"
    yield "GPU", conditions.card(context)
    yield "software", conditions.software(context)
    yield "host", conditions.host(context)
    yield "libraries", conditions.pairs(_versions(summary))
    yield "environment", conditions.pairs(context.environment)
    yield "disk", conditions.disk(context)
    yield "gpulift", f"commit {conditions.commit(context.build)}, schema {first.schema}"
    yield "script", conditions.pairs({name: sha[:16] for name, sha in first.source.items()})
    yield "again", command_again(first)


def _launches(record: Record) -> str:
    return "1 launch" if record.launches == 1 else f"{record.launches} launches"


def _versions(summary: Summary) -> dict[str, str]:
    return {
        library: version
        for record in summary.run.records
        for library, version in record.context.versions.items()
    }


def _strip(case: Case) -> Markup:
    return strips.strip(case, [arm.name for arm in case.first.arms])
