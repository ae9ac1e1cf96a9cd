"""What each setting brings on top of those before it, from records of techniques whose arms add
them up one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpulift.analysis import cost
from gpulift.analysis.arms import item_rate
from gpulift.analysis.bounds import MODEL
from gpulift.analysis.cost import Prices
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.facts import facts
from gpulift.analysis.gains import (
    BF16,
    FASTER,
    FIRST_MODELS,
    MODELS,
    NO_DIFFERENCE,
    SAME_MEMORY,
    leaning,
)
from gpulift.analysis.grade import Grade, grade_of
from gpulift.analysis.standing import KNOWN_ERROR, LADDER, LADDERS
from gpulift.analysis.summary import Summary, worth_over
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case


@dataclass(frozen=True)
class Step:
    """A rung against one below it: a ratio of neighbouring windows of the two, and of no others."""

    case: Case
    over: str
    speedup: Estimate
    grade: Grade

    @property
    def why_not(self) -> str:
        """It stands in no sentence and no figure: an erratum calls it wrong."""
        return KNOWN_ERROR if self.grade.withheld else ""


@dataclass(frozen=True)
class Rung:
    """An arm: one setting more than the one before it has."""

    name: str
    per_s: Estimate  # items
    before: Step | None  # over the last measured rung; None of the first
    whole: Step | None  # over the reference; None of that
    apart: bool  # between it and the rung before are some that were not measured
    memory_bytes: int | None  # peak on the device
    saved_bytes: int  # of it, against the rung before; 0 where that is not worth a word
    joules: float | None  # of a million or a billion items
    usd: Estimate | None  # of them

    @property
    def brings(self) -> Step | None:
        """The step over the rung before, where a sentence may have it."""
        return self.before if self.before and not self.before.why_not else None


@dataclass(frozen=True)
class Ladder:
    """The rungs of a model from the first up, and which were not measured and why."""

    case: Case
    run: str  # the folder's name
    unfinished: bool
    rungs: tuple[Rung, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def model(self) -> str:
        """Its name in words."""
        return MODELS.get(_model(self.case), _model(self.case))

    @property
    def item(self) -> str:
        """What a step works through."""
        arm = self.case.arms[self.rungs[0].name][0]
        return (arm.cost and arm.cost.item) or "item"

    @property
    def reference(self) -> str:
        """What the whole is held against, in words: BF16, where training begins, or the first."""
        return _reference([one.name for one in self.rungs])

    @property
    def said(self) -> str:
        """`Llama 1B: 60123 tokens/s with all up to fp8, 1.55× bf16; tf32 brings 4×`."""
        best = max(self.rungs, key=lambda one: one.per_s.value)
        rate = f"{self.model}: {item_rate(best.per_s.value, self.item)} with"
        head = f"{rate} {'all up to ' if best.whole else ''}{best.name}"
        if whole := best.whole:
            why_not = f"withheld against {self.reference} ({whole.grade.withheld})"
            head += f", {why_not if whole.why_not else f'{_ratio(whole)} {self.reference}'}"
        once = ["one launch: provisional"] if len(self.case.measured) == 1 else []
        return "; ".join((head, *filter(None, map(_worth, self.rungs)), *self._untold(), *once))

    def _untold(self) -> Iterator[str]:
        """`what tf32, bf16 bring is withheld (REASON)`, by reason."""
        reasons: dict[str, list[str]] = {}
        for one in self.rungs:
            if one.before and one.before.why_not:
                reasons.setdefault(one.before.grade.withheld, []).append(one.name)
        for why_not, names in reasons.items():
            verb = "brings" if len(names) == 1 else "bring"
            yield f"what {', '.join(names)} {verb} is withheld ({why_not})"


def ladders_of(
    summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS, prices: Prices | None = None
) -> tuple[Ladder, ...]:
    """A ladder for each model, of the run that launched it most often, and of equals of job/ladder,
    which has more rungs: the models that have columns first, then as they come."""
    found: dict[str, list[Ladder]] = {}
    for summary in summaries:
        for case in summary.cases:
            if case.technique not in LADDERS or doubts.today.gone(case.first):
                continue
            if len(rungs := rungs_of(case, doubts, prices)) > 1:
                run, left_out = summary.run.folder.name, tuple(_left_out(case))
                made = Ladder(case, run, case.lacks_launches, rungs, left_out)
                found.setdefault(_model(case), []).append(made)
    best = {model: max(each, key=_rank) for model, each in found.items()}
    return tuple(best[model] for model in dict.fromkeys((*FIRST_MODELS, *best)) if model in best)


def rungs_of(
    case: Case, doubts: Doubts = NO_DOUBTS, prices: Prices | None = None
) -> tuple[Rung, ...]:
    """The arms of a case that were measured and count their items, from the first up."""
    every = [arm.name for arm in case.first.arms]
    rates = {name: rate for name in every if (rate := _rate(case, name))}
    names = list(rates)
    rungs: list[Rung] = []
    reference = _reference(names)
    for name in names:
        before = rungs[-1] if rungs else None
        arm, memory = case.arms[name][0], facts(case, name).device_bytes or None
        least = before.memory_bytes if before else None
        rungs.append(
            Rung(
                name=name,
                per_s=rates[name],
                before=_step(case, name, before.name, doubts) if before else None,
                whole=_step(case, name, reference, doubts) if name != reference else None,
                apart=before is not None and every[every.index(name) - 1] != before.name,
                memory_bytes=memory,
                saved_bytes=_saved(memory, least) if memory and least else 0,
                joules=cost.joules_of(case, arm),
                usd=cost.usd_of(case, arm, prices) if prices else None,
            )
        )
    return tuple(rungs)


def _reference(names: Sequence[str]) -> str:
    return BF16 if BF16 in names else next(iter(names), "")


def _rate(case: Case, name: str) -> Estimate | None:
    """Items a second; None of an arm that was not measured, or counts none."""
    launches = case.arms.get(name)
    return stats.rate_over(launches, stats.items) if launches else None


def _step(case: Case, name: str, over: str, doubts: Doubts) -> Step | None:
    """None where the two were never measured together."""
    row = worth_over(case, name, over)
    return Step(case, over, row.speedup, grade_of(row, doubts)) if row else None


def _saved(memory: int, before: int) -> int:
    return 0 if abs(memory - before) < SAME_MEMORY * before else before - memory


def _left_out(case: Case) -> Iterator[tuple[str, str]]:
    """Arms that no launch measured, each with the first reason."""
    reasons: dict[str, str] = {}
    for record in case.measured:
        for arm in record.arms:
            if arm.name not in case.arms:
                reasons.setdefault(arm.name, arm.reason)
    yield from reasons.items()


def _model(case: Case) -> str:
    return str(case.first.case.get(MODEL, ""))


def _rank(one: Ladder) -> tuple[int, bool]:
    return len(one.case.measured), one.case.technique == LADDER


# --- In words ---


def _worth(rung: Rung) -> str:
    """`tf32 brings 4.10×`; of what is not faster its memory, too; empty where nothing is told."""
    step = rung.brings
    if step is None:
        return ""
    name = f"{rung.name} (over {step.over})" if rung.apart else rung.name
    word = leaning(step.speedup)
    if word == FASTER:
        return f"{name} brings {_ratio(step)}"
    if word == NO_DIFFERENCE:
        return f"{name} brings no speed that shows{_memory(rung)}"
    lost = text.percent(1 - step.speedup.value)
    return f"{name} costs {lost} of the speed{_memory(rung)}"


def _memory(rung: Rung) -> str:
    if not rung.saved_bytes:
        return ""
    size = text.size(abs(rung.saved_bytes))
    return f" and saves {size}" if rung.saved_bytes > 0 else f" and takes {size} more"


def _ratio(step: Step) -> str:
    return text.ratio(step.speedup.value)
