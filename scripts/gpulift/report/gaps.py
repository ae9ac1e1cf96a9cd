"""What a run's records do not hold, though its cases were measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from gpulift.analysis.machine.results import SKIPPED, CheckResult
from gpulift.analysis.summary import Summary, Worth

MOST_GAPS = 4


def gaps(summary: Summary, results: Sequence[CheckResult], known: Collection[str]) -> Iterator[str]:
    """A sentence for each; `known` are checks that another run of the machine answers for."""
    on_gpu = summary.run.records[0].context.gpu is not None
    if on_gpu and summary.worths and all(row.energy_j is None for row in summary.worths):
        yield (
            "Joules of a step: no arm has windows that the card's energy counter resolves;"
            " sustained cases on a card with that counter have them, in records of schema 1.2"
            " or later."
        )
    if any(map(_names_roof, summary.worths)) and all(
        row.roof_fraction is None for row in summary.worths
    ):
        yield (
            "Share of the measured roof: no arm has a ceiling in this run; a run that has the"
            " ceiling techniques gives it."
        )
    skipped = [one for one in results if one.verdict == SKIPPED and one.id not in known]
    if skipped:
        reasons = Counter(one.reason for one in skipped)
        said = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(MOST_GAPS))
        more = len(reasons) - MOST_GAPS
        rest = f"; and for {more} more reason{'s' if more > 1 else ''}" if more > 0 else ""
        yield f"{len(skipped)} checks were skipped: {said}{rest}."
    missing = {r.telemetry_missing for r in summary.run.records if r.telemetry_missing}
    if missing:
        yield f"Telemetry is missing: {'; '.join(sorted(missing)[:MOST_GAPS])}."


def _names_roof(row: Worth) -> bool:
    arm = row.case.first.arm(row.arm)
    return bool(arm and arm.cost and arm.cost.roof)
