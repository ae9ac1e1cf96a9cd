"""Whatever fails or is inconclusive says what to do about it and, in figures, what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpulift.analysis.machine.checks import judge_run
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, CheckResult
from gpulift.analysis.reference import Reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.records.read import read_run
from tests import sample
from tests.analysis.machine.test_qualification import (
    MEMORY,
    STEP,
    context,
    entry,
    memory,
    reference,
    result,
    run_of,
    steps,
)
from tests.sample import Json, arm, launches, unmeasured

PEAK = 2 * 3.201e9 * 6016 / 8
KNOWN = reference(entry(MEMORY, 4.5e12), entry(STEP, 1e-3))
HOST = {"conditions": {"host": "Other CPU, 4 cores"}}


def broken(outcome: str, n: int = 3) -> list[Json]:
    """A case that ended so and for which nobody knows a remedy."""
    return [unmeasured("precision/matmul", {"n": n}, outcome, "no idea", context=context())]


def broken_arm() -> list[Json]:
    made = launches(3, "precision/matmul", {"n": 1}, [arm("a", 1e-3), arm("b", 1e-3)])
    for one in made:
        one["arms"][1] = {"name": "b", "role": "technique", "outcome": "failed", "reason": "no"}
        one["order"]["blocks"] = [[0, 0]] * 8
    return made


def of_speed() -> Iterator[CheckResult]:
    cases: list[tuple[list[Json], Reference | None]] = [
        (memory(1.2 * PEAK), None),
        (memory(0.79 * PEAK), None),
        (memory(0.3 * PEAK), None),
        (memory(0.5 * PEAK, count=1), None),
        ([*memory(4.2e12), *steps(2e-3)], KNOWN),
        ([*memory(4.5e12, noise=0.05), *steps(2e-3, "host")], KNOWN),
        (memory(4.5e12, count=1), KNOWN),
        (memory(4.5e12, count=1, blocks=1), KNOWN),
        (memory(4.5e12, context=context(cuda_runtime="12.8")), KNOWN),
        (memory(4.5e12, count=1, context=context(cuda_runtime="12.8")), KNOWN),
        (steps(1e-3, "host"), reference(entry(STEP, 1e-3, **HOST))),
        ([*memory(4.5e12), *broken("failed"), *broken("error", 4), *broken_arm()], KNOWN),
        (broken("error"), reference(entry("time/precision/matmul/n:3/a", 1e-3))),
        ([*memory(4.5e12), unmeasured("integrity/repeats", {"n": 1}, "failed", "bits")], None),
    ]
    for records, known in cases:
        yield from judge_run(run_of(*records), known)


def test_what_fails_or_is_inconclusive_in_speed_has_a_remedy_and_figures() -> None:
    """Health and siblings say theirs in their own tests."""
    made = list(of_speed())
    words = [one.verdict for one in made]
    assert words.count(FAIL) >= 10, "the kinds that are to be looked at are there"
    assert words.count(INCONCLUSIVE) >= 7
    assert [one.id for one in made if one.verdict in (FAIL, INCONCLUSIVE) and not one.remedy] == []
    told = [one for one in made if one.verdict == INCONCLUSIVE]
    assert {one.smallest_effect is None for one in told} == {True, False}
    for one in told:
        assert (one.smallest_effect is None) == ("no smallest effect is known" in one.reason)


def test_other_conditions_keep_the_smallest_effect() -> None:
    changed = result(run_of(*memory(4.5e12, context=context(cuda_runtime="12.8"))), KNOWN, MEMORY)
    alike = result(run_of(*memory(4.5e12)), KNOWN, MEMORY)
    assert changed.reason.startswith("other conditions: ")
    assert changed.smallest_effect == alike.smallest_effect is not None


def test_what_broke_without_a_remedy_names_its_record_and_repeats_it(tmp_path: Path) -> None:
    made = [*memory(4.5e12), *broken("error")]
    summary: Summary = summarise(read_run(sample.write(tmp_path, made)))
    one = result(summary, KNOWN, "case/precision/matmul/n:3")
    assert one.remedy == (
        "read line 1 of precision.matmul.jsonl among the records;"
        " ./gpulift run '^precision/matmul/n:3$' repeats it"
    )


def test_a_skip_needs_no_remedy() -> None:
    one = result(run_of(*memory(4.5e12), *broken("skipped")), KNOWN, "case/precision/matmul/n:3")
    assert (one.verdict, one.remedy) == ("skipped", "")


def test_a_link_between_cards_and_the_way_through_the_host_have_remedies_of_their_own() -> None:
    direct, through_host = "roof/gpu_link/burst", "roof/gpu_link/host/burst"
    arms = [
        arm("a", 1e-3, cost={"bytes": 4e8, "roof": "gpu_link"}),
        arm("b", 1e-3, cost={"bytes": 2e7, "roof": "gpu_link/host"}),
    ]
    made = launches(3, "ceiling/collectives", {"n": 1}, arms, context=context())
    known = reference(entry(direct, 450e9), entry(through_host, 26e9))
    found = [result(run_of(*made), known, id) for id in (direct, through_host)]
    assert [one.verdict for one in found] == [FAIL, FAIL]
    assert "NVLinks" in found[0].remedy
    assert "PCIe width of both cards" in found[1].remedy
