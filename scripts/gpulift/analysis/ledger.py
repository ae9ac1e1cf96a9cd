"""Reads the ledger of published claims strictly: `articles.toml` and `claims.toml` beside this.

Articles hold statements, in their own words and in English. A claim is our testable reading of one
or more of them; without words of its own it says what the first of them says. It has a test, or why
there is none, or the public documentation that confirms or refutes it. `in_part` is what of the
statements that leaves out: it stands wherever the claim does.

A test compares an arm with a baseline. Its metric is always a gain, baseline over arm, so that more
than 1 is better: `speedup` (time), `cpu_time`, `memory` (peak memory), `rate` (items per second,
arm over baseline, for arms whose steps differ in size), `batch` (items of a step, arm over
baseline), `fragmentation` (what the allocator holds over what is in it, at their peaks),
`cold_start` (a step of the baseline over the arm's first three), or what the arms noted:
`held_out_loss` (after as many samples), `checkpoint_bytes`, `restore_time`, `training_slowdown`
(of a training beside them). Its rule is one of `at_least`, `at_most`, `between`,
`faster_or_slower_by` (in every case), `up_to` (in some case) and `both_ways` (faster by so much in
one case, slower by as much in another). With `gpu` it is about models whose names have that word,
and no other. With `control` the article itself compares with a baseline that the technique calls a
control, or that an erratum withholds for being one: the claim asks about this very ratio. With
`host` the baseline waits for the host by what it is, as Gloo does: that is what the claim is about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from gpulift.ground import toml
from gpulift.ground.errors import PATTERN_ERRORS, RecordError
from gpulift.records.decode import converted
from gpulift.records.values import Maybe, Positive, Text, among

FILE = Path(__file__).parent / "claims.toml"
ARTICLES = FILE.with_name("articles.toml")
KINDS = ("definition", "advice", "number")
METRICS = (
    *("speedup", "cpu_time", "memory", "rate", "batch", "fragmentation", "cold_start"),
    *("held_out_loss", "checkpoint_bytes", "restore_time", "training_slowdown"),
)
RULES = ("at_least", "at_most", "between", "up_to", "faster_or_slower_by", "both_ways")


@dataclass(frozen=True)
class Source:
    """Who published it, where and when; `url` is empty where none is known."""

    name: Text
    author: Text
    date: Text
    url: str = ""

    @property
    def label(self) -> str:
        """For a table."""
        return f"{self.author}, {self.date}"


@dataclass(frozen=True)
class Statement:
    """What an article says. `untested` is why no claim covers it, or what of it none covers."""

    id: str
    kind: str
    quote: str
    says: str
    source: Source
    untested: str = ""


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
    """What decides a claim."""

    technique: str
    metric: str
    rule: Rule
    cases: str
    baseline: str
    arm: str
    gpu: str = ""  # as in slugs of models: "a100"
    control: bool = False  # whether the article itself compares with a control
    host: bool = False  # whether the baseline waits for the host by what it is


@dataclass(frozen=True)
class Claim:
    """A published statement as it can be tested, and its test, or why there is none, or what
    confirms or refutes it. Its source is that of the first of the articles' statements."""

    id: str
    statement: str
    source: Source
    test: Experiment | None
    not_testable: str = ""
    confirmed_by: str = ""
    refuted_by: str = ""
    in_part: str = ""
    articles: tuple[Statement, ...] = ()

    @property
    def shown(self) -> str:
        """The statement, and what of it is not tested."""
        return f"{self.statement} In part: {self.in_part}." if self.in_part else self.statement


@dataclass(frozen=True)
class Article(Source):
    """An article as it is written."""

    statements: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class WrittenStatement:
    """A statement as it is written."""

    id: str
    kind: Annotated[str, among(*KINDS)]
    quote: Text
    says: Text
    untested: Maybe[Text] = None


@dataclass(frozen=True)
class Document:
    """The claims as they are written; what is in one is read with its id in each error."""

    claims: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Written:
    """A claim as it is written."""

    id: str
    articles: tuple[str, ...]
    statement: Maybe[Text] = None
    test: Maybe[dict[str, Any]] = None
    not_testable: Maybe[Text] = None
    confirmed_by: Maybe[Text] = None
    refuted_by: Maybe[Text] = None
    in_part: Maybe[Text] = None


ONE_OF = ("test", "not_testable", "confirmed_by", "refuted_by")


@dataclass(frozen=True, kw_only=True)
class Test:
    """A test as it is written."""

    technique: Text
    cases: str
    baseline: Text
    arm: Text
    metric: Annotated[str, among(*METRICS)]
    gpu: Maybe[Text] = None
    control: bool = False
    host: bool = False
    at_least: Maybe[Positive] = None
    at_most: Maybe[Positive] = None
    between: Maybe[tuple[Positive, Positive]] = None
    up_to: Maybe[Positive] = None
    faster_or_slower_by: Maybe[Positive] = None
    both_ways: Maybe[Positive] = None


def read_statements(file: Path = ARTICLES) -> dict[str, Statement]:
    """What the articles say, by id, in their order; GpuliftError (2) names what is wrong."""
    statements: dict[str, Statement] = {}
    for name, raw in converted(toml.parsed(file), dict[str, dict[str, Any]], file.name).items():
        article = converted(raw, Article, file.name, name, closed=True)
        source = Source(article.name, article.author, article.date, article.url)
        for each in article.statements:
            key = _id_of(each, statements, f"{file.name}: {name}")
            one = converted(each, WrittenStatement, file.name, key, closed=True)
            statements[key] = Statement(
                key, one.kind, one.quote, one.says, source, one.untested or ""
            )
    return statements


def read_ledger(file: Path = FILE, articles: Path = ARTICLES) -> tuple[Claim, ...]:
    """All claims in the order of the file; GpuliftError (2) names what is wrong, and in which."""
    statements = read_statements(articles)
    claims: dict[str, Claim] = {}
    for raw in converted(toml.parsed(file), Document, file.name, closed=True).claims:
        key = _id_of(raw, claims, f"{file.name}: claim")
        written = converted(raw, Written, file.name, f"claim {key}", closed=True)
        claims[key] = _claim(written, statements, file.name)
    if not claims:
        raise RecordError(f"{file.name}: claims must not be empty")
    return tuple(claims.values())


def _id_of(raw: Mapping[str, Any], known: Mapping[str, object], place: str) -> str:
    """Of a claim or a statement, which are not known yet."""
    key = converted(raw.get("id"), str, place, f"[{len(known)}].id")
    if key in known:
        raise RecordError(f"{place} {key}.id: {key!r} is there twice")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key):
        raise RecordError(f"{place} {key}.id must be lower-case words and digits joined by hyphens")
    return key


def _claim(written: Written, statements: Mapping[str, Statement], file: str) -> Claim:
    key = f"claim {written.id}"
    unknown = [one for one in written.articles if one not in statements]
    if unknown or not written.articles:
        named = f"names {unknown[0]!r}, which no article has" if unknown else "must not be empty"
        raise RecordError(f"{file}: {key}.articles {named}")
    if sum(getattr(written, name) is not None for name in ONE_OF) != 1:
        raise RecordError(f"{file}: {key} must have one of {', '.join(ONE_OF)}")
    articles = tuple(statements[one] for one in written.articles)
    return Claim(
        id=written.id,
        statement=written.statement or articles[0].says,
        source=articles[0].source,
        test=None if written.test is None else _experiment(written.test, file, f"{key}.test"),
        not_testable=written.not_testable or "",
        confirmed_by=written.confirmed_by or "",
        refuted_by=written.refuted_by or "",
        in_part=written.in_part or "",
        articles=articles,
    )


def _experiment(raw: Mapping[str, Any], file: str, key: str) -> Experiment:
    test = converted(raw, Test, file, key, closed=True)
    try:
        re.compile(test.cases)
    except PATTERN_ERRORS as error:
        raise RecordError(f"{file}: {key}.cases is not a regular expression: {error}") from None
    return Experiment(
        technique=test.technique,
        metric=test.metric,
        rule=_rule(test, f"{file}: {key}"),
        cases=test.cases,
        baseline=test.baseline,
        arm=test.arm,
        gpu=test.gpu or "",
        control=test.control,
        host=test.host,
    )


def _rule(test: Test, place: str) -> Rule:
    kinds = [kind for kind in RULES if getattr(test, kind) is not None]
    if len(kinds) != 1:
        raise RecordError(f"{place}.rule must be exactly one of {', '.join(RULES)}")
    if test.between is not None:
        low, high = test.between
        if low >= high:
            raise RecordError(f"{place}.between must be two rising positive numbers")
        return Rule("between", low, high)
    end = getattr(test, kinds[0])
    return Rule(kinds[0], high=end) if kinds[0] == "at_most" else Rule(kinds[0], low=end)
