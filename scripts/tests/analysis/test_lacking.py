"""What is worth measuring next: rows of BEGIN, then claims, then techniques."""

from __future__ import annotations

from dataclasses import replace

from gpulift.analysis.begin_rows import Known
from gpulift.analysis.claim_rules import CONFIRMED
from gpulift.analysis.claims import NOT_DECIDED, NOT_MEASURED, Judgement, judge
from gpulift.analysis.doubts import NO_DOUBTS
from gpulift.analysis.lacking import lacking, told
from gpulift.analysis.today import UNKNOWN, Declared, Today, digest_of
from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.records.model import Record
from tests.analysis.test_claims_judge import case, claim, records

H200 = "nvidia-h200"
NOTHING = Known({}, NO_DOUBTS, UNKNOWN, {}, {})
SOURCE = {"a.b.cu": "1" * 64}
TODAY = Today({"a/b": Declared(("old", "new"), {"n": (1, 2)}, digest_of(SOURCE))})


def launched(count: int) -> list[Record]:
    """Of the case n:1, of the text that is today's in TODAY."""
    return records(case(1, 3.0, count=count, source=SOURCE, schema="1.14"))


def technique(id: str, *cases: str, quick: str = "") -> TechniqueInfo:
    infos = tuple(CaseInfo(one, quick=one == quick) for one in cases)
    return TechniqueInfo(id, "", 1, False, ("old", "new"), infos)


def judgement(verdict: str, cases: str = "") -> Judgement:
    return Judgement(claim(cases=cases), verdict)


def test_rows_of_begin_come_before_claims_and_these_before_techniques() -> None:
    today = Today({"compile/regions": Declared(("eager", "layers"), {"model": ("llama_1b",)})})
    infos = [
        technique("x/y", "n:1"),
        technique("a/b", "n:1", "n:2"),
        technique("compile/regions", "model:llama_1b"),
    ]
    found = lacking(
        replace(NOTHING, today=today), [judgement(NOT_MEASURED, "n:2")], infos, [], H200
    )
    assert {name: told(fills) for name, fills in found.items()} == {
        ("compile/regions", "model:llama_1b"): (
            "fills in BEGIN: `torch.compile`; launches of today: 0 of 3"
        ),
        ("a/b", "n:2"): "claims: one",
        ("x/y", "n:1"): "launches of today: 0 of 3",
        ("a/b", "n:1"): "launches of today: 0 of 3",
    }


def test_what_is_decided_or_of_another_gpu_or_not_in_this_build_lacks_nothing() -> None:
    other = judgement(NOT_MEASURED)
    assert other.claim.test
    test = replace(other.claim.test, gpu="a100")
    elsewhere = replace(other, claim=replace(other.claim, test=test))
    open_ones = [judgement(CONFIRMED), elsewhere, judgement(NOT_MEASURED, "n:7")]
    infos = [technique("a/b", "n:1")]
    found = lacking(NOTHING, open_ones, infos, launched(3), H200)
    assert found == {}


def test_of_a_claim_the_cases_of_one_launch_are_asked_for() -> None:
    (one,) = judge([claim()], records(case(2, 3.0, count=1)))
    assert one.verdict == NOT_DECIDED
    found = lacking(NOTHING, [one], [technique("a/b", "n:1", "n:2")], [], H200)
    assert list(found) == [("a/b", "n:2"), ("a/b", "n:1")]


def test_what_three_launches_of_today_left_open_is_not_asked_for_again() -> None:
    infos = [technique("a/b", "n:1", "n:2")]
    known = replace(NOTHING, today=TODAY)
    assert lacking(known, [judgement(NOT_DECIDED)], infos, launched(2), H200)
    assert not lacking(known, [judgement(NOT_DECIDED)], infos, launched(3), H200)


def test_the_leading_case_is_asked_for_until_a_case_has_three_launches_of_todays_text() -> None:
    infos = [technique("a/b", "n:1", "n:2", quick="n:2")]
    known = replace(NOTHING, today=TODAY)
    for count in (2, 3):
        found = lacking(known, [], infos, launched(count), H200)
        assert [told(one) for one in found.values()] == ["launches of today: 2 of 3"] * (count < 3)
        assert list(found) == [("a/b", "n:2")] * (count < 3)
    assert not lacking(NOTHING, [], infos, launched(3), H200), "a technique of the user's own"
    changed = Today({"a/b": Declared(("old", "new"), {"n": (1, 2)}, "another")})
    found = lacking(replace(NOTHING, today=changed), [], infos, launched(3), H200)
    assert told(found["a/b", "n:2"]) == "launches of today: 0 of 3"
