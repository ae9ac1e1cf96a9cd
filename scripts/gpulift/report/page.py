"""The report: one self-contained HTML page, its Markdown twin and the figures as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpulift import machine
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.duets import duet_rows
from gpulift.analysis.gains import FIRST_MODELS
from gpulift.analysis.over_runs import with_models
from gpulift.analysis.summary import Summary, with_roofs
from gpulift.citing import errata
from gpulift.claims.ledger import read_ledger
from gpulift.costing import Prices
from gpulift.errors import GpuliftError
from gpulift.qualify.checks import CheckResult, judge_run
from gpulift.qualify.saved import health_of
from gpulift.records.model import Record
from gpulift.report import (
    claimed,
    error_rates,
    escaping,
    feeding,
    figures,
    models,
    planned,
    render,
    scaling,
    topology,
    twin,
    views,
)
from gpulift.report.changes import Change
from gpulift.report.limits import limits
from gpulift.report.settings import settings
from gpulift.runs import write_error


def write(
    summaries: Sequence[Summary],
    out: Path,
    verdicts: Mapping[Path, Sequence[CheckResult]] | None = None,
    changes: Sequence[Change] = (),
    results: Path | None = None,
    further: Sequence[Record] = (),
    prices: Prices | None = None,
) -> Path:
    """Writes the report of machines and changes into a folder; returns the page's path.

    `verdicts` of a run folder are shown as they are; others are made from the records alone.
    Certificates and known errors come from `results`, by default the checkout's. `further` are
    records of other runs of the same models, for figures that are about the model. `prices` add
    what a million items cost.
    """
    if not summaries and not changes:
        raise GpuliftError("there is nothing to report")
    summaries = with_models(_ordered(_distinct(summaries)), further)
    summaries = [with_roofs(one, summaries) for one in summaries]
    results = results or machine.checkout_root() / "results"
    doubts = doubts_of(summaries, errata.read_errata(results / errata.FILE))
    anchors = escaping.anchors(views.technique_ids(summaries), "t")
    judged = [(one, _judged(one, verdicts or {})) for one in summaries]
    machines = views.machine_views(judged, anchors, doubts)
    anchors = views.in_order(anchors, machines)
    slugs = [one.run.records[0].context.slug for one in summaries]
    certificates = error_rates.views([*slugs, *(change.machine for change in changes)], results)
    beside = models.views(summaries, models.known_references(results))
    duets = duet_rows([one.run for one in summaries])
    most = limits(sum(len(one.run.records) for one in summaries))
    compared = [one.figure for one in beside if one.figure]
    wanted = [*planned.of_machines(machines, most)]
    wanted += planned.of_techniques(machines, anchors, most)
    several = scaling.drawings(machines)
    scaled = several[: most.sweeps]
    fed = feeding.drawings(machines[: most.machines])
    wanted += [*scaled, *fed]
    wanted += [*(one.curve for one in certificates), *compared[: most.models]]
    wanted.append(planned.of_duets(duets))
    values: dict[str, object] = {
        "title": _title(summaries, changes),
        "names": [one.run.machine for one in summaries],
        "machines": machines,
        "settings": settings(machines),
        "changes": list(changes),
        "certificates": certificates,
        "topology": topology.views(summaries),
        "models": beside,
        "duets": duets,
        "doubts": doubts,
        "models_first": list(FIRST_MODELS.values()),
        "scaled": scaled,
        "fed": fed,
        "undrawn": planned.left_out(machines, anchors, len(compared), len(several), most),
        "most": most,
        "on_page": {record.id for one in summaries for record in one.run.records},
        "prices": prices,
    }
    values["contents"] = _contents(values)
    try:
        claims = claimed.claims_views(read_ledger(), summaries, further, doubts)
        techniques = views.technique_views(machines, anchors, claims, most.strips, doubts)
        drawn = figures.drawn([drawing for drawing in wanted if drawing], out / "figures")
        values |= {"claims": claims, "techniques": techniques, "figures": drawn}
        (out / "report.md").write_text(twin.fit(render.twin_parts(values)), encoding="utf-8")
        (out / "report.html").write_text(render.page(values), encoding="utf-8")
    except OSError as error:
        raise write_error(out, error) from None
    return out / "report.html"


def _distinct(summaries: Sequence[Summary]) -> list[Summary]:
    """Each run once, though it may be named twice: ids on a page must differ."""
    found = {tuple(record.id for record in one.run.records): one for one in summaries}
    return list(found.values())


def _ordered(summaries: Sequence[Summary]) -> list[Summary]:
    """Machines as they came; of each the run that answers most is first, of equals the newest."""
    names = list(dict.fromkeys(one.run.machine for one in summaries))
    newest = sorted(summaries, key=lambda one: one.run.records[0].started_at, reverse=True)
    most = sorted(newest, key=lambda one: -len(one.worths) - len(one.roofs))
    return sorted(most, key=lambda one: names.index(one.run.machine))


def _title(summaries: Sequence[Summary], changes: Sequence[Change]) -> str:
    if not summaries:
        return f"{changes[0].head} against {changes[0].base}"
    return " beside ".join(dict.fromkeys(one.run.machine for one in summaries))


def _contents(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Anchors and names of the page's sections, of those that it has."""
    every = (
        ("answer", "The answer", "machines"),
        ("changes", "Verdicts on changes", "changes"),
        ("duets", "Two builds", "duets"),
        ("roofs", "Roofs", "machines"),
        ("topology", "How the GPUs are linked", "topology"),
        ("techniques", "Techniques", "machines"),
        ("scaling", "Several GPUs", "scaled"),
        ("feeding", "Feeding", "fed"),
        ("claims", "Published claims", "machines"),
        ("models", "Models side by side", "models"),
        ("missing", "What was not measured", "machines"),
        ("conditions", "Conditions", "machines"),
        ("certificates", "How often the verdict is wrong", "certificates"),
        ("errata", "Known errors", "doubts"),
        ("reading", "How to read a number", "machines"),
        ("records", "Records", "machines"),
    )
    return [(anchor, name) for anchor, name, needs in every if values[needs]]


def _judged(
    summary: Summary, verdicts: Mapping[Path, Sequence[CheckResult]]
) -> tuple[CheckResult, ...]:
    known = verdicts.get(summary.run.folder)
    if known is not None:
        return tuple(known)
    health = summary.health or health_of(summary.run)
    return judge_run(summary, summary.reference, health)
