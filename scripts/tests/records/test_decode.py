"""What is wrong in a document is named by its place, its key and what it must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from gpulift.ground.errors import RecordError
from gpulift.records.decode import converted, decoded
from gpulift.records.values import Count, Fraction, Maybe, Text, among


@dataclass(frozen=True)
class Part:
    name: Annotated[str, among("", "left", "right/far")]
    share: Maybe[Fraction] = None

    def __post_init__(self) -> None:
        if self.name == "left" and self.share == 0.5:
            raise ValueError("left has another share")


@dataclass(frozen=True)
class Whole:
    title: Text
    parts: tuple[Part, ...] = ()
    by_key: Mapping[str, Part] = field(default_factory=dict)
    counts: Mapping[str, Count] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


LEFT = {"name": "left"}
DEEP: dict[str, Any] = {}
for _ in range(3000):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({}, "title is missing"),
        ({"title": ""}, "title must not be empty"),
        ({"title": 5}, "title must be str, not int"),
        ([], "the line must be object, not array"),
        ({"title": "t", "parts": [LEFT, {}]}, r"parts[1].name is missing"),
        ({"title": "t", "parts": [{"name": "up"}]}, "parts[0].name must be one of left, right/far"),
        (
            {"title": "t", "parts": [{"name": "left\n"}]},
            "parts[0].name must be one of left, right/far",
        ),
        (
            {"title": "t", "parts": [{**LEFT, "share": None}]},
            "parts[0].share must be float, not null",
        ),
        ({"title": "t", "parts": [{**LEFT, "share": 1}]}, "parts[0].share must be float < 1.0"),
        ({"title": "t", "parts": [{**LEFT, "share": 0.5}]}, "parts[0]: left has another share"),
        ({"title": "t", "counts": {"a": 1, "b/c.d:2": 0}}, "counts.b/c.d:2 must be int >= 1"),
        ({"title": "t", "by_key": {"a": LEFT, "b": {}}}, "by_key.b.name is missing"),
        ({"title": "t", "more": 1}, "more is not known here"),
        ({"title": "t", "by_key": {"b": {**LEFT, "c": 1}}}, "by_key.b.c is not known here"),
        ({"title": "t", "parts": [LEFT, {**LEFT, "c": 1}]}, "parts[1].c is not known here"),
    ],
)
def test_what_is_wrong_is_named(raw: Any, problem: str) -> None:
    with pytest.raises(RecordError) as caught:
        converted(raw, Whole, "file.json", closed=True)
    assert str(caught.value) == f"file.json: {problem}"


def test_an_open_kind_has_room_for_more() -> None:
    made = decoded(b'{"title": "t", "more": 1, "parts": [{"name": "left", "c": 2}]}', Whole, "f")
    assert made == Whole("t", (Part("left"),))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"title": "t", "\ud800": 1}, "holds text that cannot be written as UTF-8"),
        ({"title": "t", "by_key": {"b": 1}, "more": DEEP}, "by_key[...] must be object, not int"),
        ({"title": "t", "notes": DEEP}, "is nested too deeply"),
    ],
)
def test_what_cannot_be_looked_into_is_refused(raw: Any, words: str) -> None:
    with pytest.raises(RecordError, match=re.escape(words)):
        converted(raw, Whole, "f", closed=True)


def test_the_key_of_an_object_within_another_is_told() -> None:
    with pytest.raises(RecordError, match=r"^f: claim x\.title is missing$"):
        converted({}, Whole, "f", "claim x")
