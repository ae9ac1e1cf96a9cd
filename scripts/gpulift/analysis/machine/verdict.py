"""The verdict on a machine: one word and one sentence of all its checks, as the exit code has it.

Step times and costs inform: they vary with the host, and decide nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpulift.analysis.machine.results import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    VERDICTS,
    CheckResult,
)
from gpulift.analysis.summary import Summary
from gpulift.ground import errors, text
from gpulift.records.model import Record

GLYPHS = {PASS: "✓", FAIL: "✗", INCONCLUSIVE: "?", SKIPPED: "–"}
DECIDING = ("roof/", "fixed/", "health/", "siblings/", "pairs", "all_reduce", "ranks")
INFORMING = ("time/", "cost/")
SPEED = ("roof/", "fixed/", "siblings/", *INFORMING)
MOST_OPEN = 0.1  # of what decides and was not skipped
NOTHING_JUDGED = "Not judged: nothing that was measured here has a limit"
NO_SPEED = "no speed was judged"
NO_LOAD = "no sustained load was applied"
MOST_NAMED = 3
PARTS = (
    ("roofs", ("roof/",)),
    ("health", ("health/",)),
    ("step times", INFORMING),
    ("cases", ("case/",)),
)


@dataclass(frozen=True)
class Answer:
    """Whether a machine is as fast as it should be."""

    verdict: str
    sentence: str  # `Pass (105 checks), 48 undecided, 0 failed`
    counts: tuple[str, ...]  # `roofs: 15 pass, 1 inconclusive`, for each kind of check
    basis: str  # what judged them
    failed: tuple[str, ...]  # names

    @property
    def glyph(self) -> str:
        """A sign for the verdict."""
        return GLYPHS[self.verdict]

    @property
    def line(self) -> str:
        """Sign, sentence and what failed."""
        return f"{self.glyph} {self.sentence}{self.names}"

    @property
    def names(self) -> str:
        """`: roof/gemm/bf16/burst, 2 more`; empty where none failed."""
        more = len(self.failed) - MOST_NAMED
        rest = [f"{more} more"] if more > 0 else []
        return f": {', '.join([*self.failed[:MOST_NAMED], *rest])}" if self.failed else ""


def answer(results: Sequence[CheckResult], basis: str = "", load: str = "") -> Answer:
    """The verdict of all checks together. `load` is what `load_of` says."""
    verdict = overall(results)
    if verdict in (PASS, INCONCLUSIVE) and not any(map(_of_speed, results)):
        verdict = INCONCLUSIVE
    sentence = _sentence(verdict, results)
    if verdict != SKIPPED:
        sentence = "; ".join(filter(None, (sentence, load)))
    failed = tuple(one.id for one in results if _fails(one))
    return Answer(verdict, sentence, _counts(results), basis, failed)


def overall(results: Sequence[CheckResult]) -> str:
    """A failure counts most, then where too much of what decides is open; skipped checks never
    make a pass."""
    if any(map(_fails, results)):
        return FAIL
    if too_much_open(results):
        return INCONCLUSIVE
    verdicts = {one.verdict for one in results}
    if PASS in verdicts:
        return PASS
    return INCONCLUSIVE if verdicts - {SKIPPED} else SKIPPED


def too_much_open(results: Sequence[CheckResult]) -> bool:
    """Whether more than a tenth of what decides could not be told."""
    told = [one for one in results if one.id.startswith(DECIDING) and one.verdict != SKIPPED]
    return sum(one.verdict == INCONCLUSIVE for one in told) > MOST_OPEN * len(told)


def exit_code_of(results: Sequence[CheckResult]) -> int:
    """Step times and costs vary with the host: they are shown, and do not decide."""
    if any(map(_fails, results)):
        return errors.FAILED
    return errors.INCONCLUSIVE if too_much_open(results) else errors.OK


def load_of(*cards: Summary) -> str:
    """For how long the GPUs were under sustained load, or that one was not; empty without a GPU."""
    if any(one.run.records[0].context.gpu is None for one in cards):
        return ""
    seconds = min(_load_s(one.run.records) for one in cards)
    each = " on each GPU" if len(cards) > 1 else ""
    return f"{text.seconds(seconds)} of sustained load{each}" if seconds > 0 else NO_LOAD


def _load_s(records: Sequence[Record]) -> float:
    return sum(
        record.time_s.get(key, 0.0)
        for record in records
        if record.regime == "sustained" and _on_device(record)
        for key in ("windows", "lead_in")
    )


def _sentence(verdict: str, results: Sequence[CheckResult]) -> str:
    if verdict == SKIPPED:
        return NOTHING_JUDGED
    words = Counter(one.verdict for one in results)
    failed = sum(map(_fails, results))
    passed, undecided, slow = words[PASS], words[INCONCLUSIVE], words[FAIL] - failed
    if verdict == FAIL:
        said = f"Fail ({text.counted(failed, 'check')}), {passed} passed, {undecided} undecided"
    elif verdict == PASS:
        said = f"Pass ({text.counted(passed, 'check')}), {undecided} undecided, 0 failed"
    elif not any(map(_of_speed, results)):
        said = f"Undecided: {NO_SPEED}; {passed} passed, {undecided} undecided, 0 failed"
    else:
        said = f"Undecided ({text.counted(undecided, 'check')}), {passed} passed, 0 failed"
    late = f"{text.counted(slow, 'step time')} too long, which decides nothing" if slow else ""
    return "; ".join(filter(None, (said, late)))


def _fails(one: CheckResult) -> bool:
    return one.verdict == FAIL and not one.id.startswith(INFORMING)


def _of_speed(one: CheckResult) -> bool:
    return one.verdict in (PASS, FAIL) and one.id.startswith(SPEED)


def _on_device(record: Record) -> bool:
    return any(len(arm.windows.device_s) for arm in record.arms)


def _counts(results: Sequence[CheckResult]) -> tuple[str, ...]:
    found = []
    for name, beginnings in PARTS:
        words = Counter(one.verdict for one in results if one.id.startswith(beginnings))
        if words:
            counted = ", ".join(f"{words[word]} {word}" for word in VERDICTS if words[word])
            found.append(f"{name}: {counted}")
    return tuple(found)
