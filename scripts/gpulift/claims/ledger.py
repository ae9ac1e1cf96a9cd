"""Reads the ledger of published claims: `claims.toml` beside this file, strictly.

A test compares an arm with a baseline. Its metric is always a gain, baseline over arm, so that more
than 1 is better: `speedup` (time), `memory` (peak memory), `rate` (items per second, arm over
baseline, for arms whose steps differ in size), `batch` (items of a step, arm over baseline),
`fragmentation` (what the allocator holds over what is in it, at their peaks), `cold_start` (a step
of the baseline over the arm's first three) or `held_out_loss` (after as many samples). Its rule is
one of `at_least`, `at_most`, `between`, `faster_or_slower_by` (in every case) and `up_to` (in some
case). With `gpu` it is about models whose names have that word, and no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpulift import toml
from gpulift.records.fields import Fields

FILE = Path(__file__).parent / "claims.toml"
METRICS = ("speedup", "memory", "rate", "batch", "fragmentation", "cold_start", "held_out_loss")
RULES = ("at_least", "at_most", "between", "up_to", "faster_or_slower_by")
SOURCE_KEYS = frozenset({"name", "author", "date", "url"})
CLAIM_KEYS = frozenset({"id", "statement", "source", "test", "not_testable"})
PLAN_KEYS = frozenset({"technique", "metric", "planned", *RULES})
TEST_KEYS = PLAN_KEYS | {"cases", "baseline", "arm", "gpu"}


@dataclass(frozen=True)
class Source:
    """Who published it, where and when; `url` is empty where none is known."""

    name: str
    author: str
    date: str
    url: str

    @property
    def label(self) -> str:
        """For a table."""
        return f"{self.author}, {self.date}"


@dataclass(frozen=True)
class Rule:
    """The gains that the claim allows, ends included; an open end is None."""

    kind: str
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """As in `at least 8×`."""
        ends = [f"{end:g}×" for end in (self.low, self.high) if end is not None]
        return f"{self.kind.replace('_', ' ')} {' and '.join(ends)}"


@dataclass(frozen=True)
class Experiment:
    """What decides a claim. A planned one has no cases and arms yet: its technique is not built."""

    technique: str
    metric: str
    rule: Rule
    cases: str = ""
    baseline: str = ""
    arm: str = ""
    planned: bool = False
    gpu: str = ""  # as in slugs of models: "a100"


@dataclass(frozen=True)
class Claim:
    """A published statement in our own words, and either its test or why there is none."""

    id: str
    statement: str
    source: Source
    test: Experiment | None
    not_testable: str = ""


def read_ledger(file: Path = FILE) -> tuple[Claim, ...]:
    """All claims in the order of the file; GpuliftError (2) names what is wrong, and in which."""
    fields = Fields(toml.parsed(file), file.name)
    _only(fields, frozenset({"sources", "claims"}))
    named = fields.child("sources")
    sources = {key: _source(named.child(key)) for key in named.values}
    found: dict[str, Claim] = {}
    for one in fields.children("claims"):
        claim = _claim(one, sources)
        if claim.id in found:
            raise one.error("id", f"{claim.id!r} is there twice")
        found[claim.id] = claim
    if not found:
        raise fields.error("claims", "must not be empty")
    return tuple(found.values())


def _source(fields: Fields) -> Source:
    _only(fields, SOURCE_KEYS)
    return Source(
        name=_filled(fields, "name"),
        author=_filled(fields, "author"),
        date=_filled(fields, "date"),
        url=fields.text("url", ""),
    )


def _claim(fields: Fields, sources: Mapping[str, Source]) -> Claim:
    key = _filled(fields, "id")
    fields = Fields(fields.values, fields.place, f"claim {key}")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key):
        raise fields.error("id", "must be lower-case words and digits joined by hyphens")
    _only(fields, CLAIM_KEYS)
    source = _filled(fields, "source")
    if source not in sources:
        raise fields.error("source", f"is {source!r}, which is not among the sources")
    if fields.has("test") == fields.has("not_testable"):
        raise fields.error("test", "or not_testable must be there, and not both")
    return Claim(
        id=key,
        statement=_filled(fields, "statement"),
        source=sources[source],
        test=_experiment(fields.child("test")) if fields.has("test") else None,
        not_testable=_filled(fields, "not_testable") if fields.has("not_testable") else "",
    )


def _experiment(fields: Fields) -> Experiment:
    planned = fields.flag("planned", False)
    _only(fields, PLAN_KEYS if planned else TEST_KEYS)
    metric = _filled(fields, "metric")
    if metric not in METRICS:
        raise fields.error("metric", f"must be one of {', '.join(METRICS)}")
    technique = _filled(fields, "technique")
    if planned:
        return Experiment(technique, metric, _rule(fields), planned=True)
    cases = fields.text("cases")
    try:
        re.compile(cases)
    except re.error as error:
        raise fields.error("cases", f"is not a regular expression: {error}") from None
    return Experiment(
        technique=technique,
        metric=metric,
        rule=_rule(fields),
        cases=cases,
        baseline=_filled(fields, "baseline"),
        arm=_filled(fields, "arm"),
        gpu=_filled(fields, "gpu") if fields.has("gpu") else "",
    )


def _rule(fields: Fields) -> Rule:
    kinds = [kind for kind in RULES if fields.has(kind)]
    if len(kinds) != 1:
        raise fields.error("rule", f"must be exactly one of {', '.join(RULES)}")
    kind = kinds[0]
    if kind == "between":
        ends = fields.numbers(kind)
        if len(ends) != 2 or not 0 < ends[0] < ends[1]:
            raise fields.error(kind, "must be two rising positive numbers")
        return Rule(kind, *ends)
    end = fields.number(kind)
    if end <= 0:
        raise fields.error(kind, "must be positive")
    return Rule(kind, high=end) if kind == "at_most" else Rule(kind, low=end)


def _only(fields: Fields, known: frozenset[str]) -> None:
    for key in fields.values:
        if key not in known:
            raise fields.error(key, "is not known here")


def _filled(fields: Fields, key: str) -> str:
    text = fields.text(key)
    if not text:
        raise fields.error(key, "must not be empty")
    return text
