"""How long a launch of a case takes, by what records say that one like it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from gpulift.analysis.today import Today
from gpulift.records.model import Record
from gpulift.verdicts.cases import TECHNIQUE

BETWEEN_S = 1.0  # launches of committed runs: half a second in the median, 1.1 in one of ten


@dataclass(frozen=True)
class Cost:
    """Seconds of a launch, and whose records say it where they are not the case's own of the
    model."""

    launch_s: float
    of: str = ""


@dataclass(frozen=True)
class _Taken:
    """By a measured case, for each of its arms."""

    model: str
    case: str
    arm_s: float
    quick: bool
    run: Path
    began_at: str


class Costs:
    """By the newest run of the case on the model, else of other cases of its technique, else of
    other models; by quick runs, which take less, only where there are no others. Of 185 cases of
    two models other cases were off by 1.13 times in the median, the same case of the other model
    by 1.6."""

    def __init__(self, records: Iterable[Record], today: Today) -> None:
        self._taken: dict[str, list[_Taken]] = {}
        for one in records:
            arms = sum(arm.outcome == "ok" for arm in one.arms)
            if one.kind == TECHNIQUE and arms and "total" in one.time_s:
                quick = one.context.options.get("quick") is True
                taken = _Taken(
                    one.context.slug,
                    today.case_id(one),
                    one.time_s["total"] / arms,
                    quick,
                    one.file.parent,
                    one.began_at,
                )
                self._taken.setdefault(one.technique, []).append(taken)

    def launch(self, technique: str, case: str, arms: int, model: str) -> Cost | None:
        """Of a launch with so many arms; None where no record tells."""
        on_host = model.startswith("cpu-")
        for quick in (False, True):
            every = [one for one in self._taken.get(technique, ()) if one.quick == quick]
            kin = [one for one in every if one.model.startswith("cpu-") == on_host]
            for of_models in ([one for one in kin if one.model == model], kin, every):
                for found in ([one for one in of_models if one.case == case], of_models):
                    if found:
                        return _newest(found, case, arms, model)
        return None


def _newest(found: list[_Taken], case: str, arms: int, model: str) -> Cost:
    newest = max(found, key=lambda one: one.began_at)
    seconds = fmean(one.arm_s for one in found if one.run == newest.run)
    told = [
        "a quick run" if newest.quick else "",
        "other cases" if newest.case != case else "",
        newest.model if newest.model != model else "",
    ]
    return Cost(arms * seconds + BETWEEN_S, ", ".join(filter(None, told)))
