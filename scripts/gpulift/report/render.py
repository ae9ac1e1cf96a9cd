"""The page and its answer in Markdown from the same values, each with its own escaping."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from gpulift.analysis import claims
from gpulift.analysis import cost as costing
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.machine.verdict import GLYPHS
from gpulift.ground import text
from gpulift.ground.field import WORDS
from gpulift.records.model import Record
from gpulift.report import beside, changes, escaping, tables, technique_views
from gpulift.report.claimed import CLAIM_STYLES
from gpulift.verdicts import decision

SCRIPT, STYLE = "report.js", "report.css"


def page(values: Mapping[str, Any], template: str = "report.html.j2") -> str:
    """An HTML page. Its one script is allowed by its hash, and nothing may be fetched."""
    environment = _environment(html=True)
    script, style = (_file(environment, one) for one in (SCRIPT, STYLE))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made = environment.get_template(template)
    return made.render({**values, "script": script, "style": style, "digest": digest})


def markdown(values: Mapping[str, Any], template: str) -> str:
    """A page in Markdown."""
    return _environment(html=False).get_template(template).render(values)


@pass_context
def _runs(context: Context, records: Sequence[Record]) -> Markup:
    return technique_views.runs(records, context["doubts"])


@pass_context
def _errors(context: Context, records: Sequence[Record]) -> Markup:
    """`E1 E3`, each a link to a known error of any of the records."""
    return technique_views.error_links(records, context["doubts"])


@pass_context
def _error_names(context: Context, records: Sequence[Record]) -> str:
    """` E1 E3`, for Markdown."""
    return "".join(f" {one.name}" for one in context["doubts"].known(records))


def _caption(alt: str) -> str:
    """The first sentence of what a figure says in words, as far as it names what is drawn; all of
    it is the figure's label."""
    return re.split(r"[:.](?= |$)", alt, maxsplit=1)[0]


def _file(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    source = environment.loader.get_source(environment, name)[0]
    return source.strip("\n")


@cache
def _environment(html: bool) -> Environment:
    made = Environment(
        loader=PackageLoader("gpulift.report"),
        autoescape=html,
        finalize=escaping.html if html else escaping.markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(claim_styles=CLAIM_STYLES, prices=None, field=json.dumps(WORDS))
    made.filters.update(
        rate=text.rate,
        ratio=text.ratio,
        around=text.around,
        seconds=text.seconds,
        saved=text.saved,
        size=text.size,
        percent=text.percent,
        change=decision.percent,
        speedup=text.speedup,
        glyph=lambda estimate: text.verdict(estimate)[0],
        verdict=lambda estimate: text.verdict(estimate)[1],
        caption=_caption,
        case=text.case_label,
        short_case=partial(text.case_label, short=True),
        check=tables.check,
        cpu=technique_views.cpu,
        usd=costing.of_comparison,
        money=costing.money,
        amount=costing.amount,
        usd_of_records=costing.of_records,
        energy=technique_views.energy,
        launches=technique_views.launches,
        memory=technique_views.memory,
        rates=technique_views.rates,
        bound=technique_views.bound,
        predicted=technique_views.predicted,
        runs=_runs,
        errors=_errors,
        error_names=_error_names,
        quantity=quantity,
        judged=lambda result: GLYPHS[result.verdict],
        groups=tables.group_problems,
        name=escaping.name,
        head=escaping.head,
        brief=escaping.brief,
        code=escaping.code,
        ready=escaping.Ready,
        fact_shown=beside.shown,
        fact_basis=beside.basis,
        fact_notes=beside.notes,
        claim_measured=claims.measured,
        claim_conditions=claims.conditions,
        **changes.FILTERS,
    )
    return made
