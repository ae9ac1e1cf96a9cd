"""How fast this card trains whole models, in words."""

from __future__ import annotations

from gpulift.analysis.arms import item_rate
from gpulift.analysis.bounds import trained_model
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.gains import FIRST_MODELS
from gpulift.analysis.standing import why_not_leading
from gpulift.analysis.summary import Summary, Worth
from gpulift.ground import text

TECHNIQUE = "precision/training_step"


def answers(summary: Summary, doubts: Doubts = NO_DOUBTS) -> list[str]:
    """A line for each model that was measured; none where none was. In place of a ratio that may
    not lead stands why."""
    rows = [row for row in summary.worths if row.technique == TECHNIQUE]
    return [_answer(row, doubts) for row in sorted(rows, key=lambda row: row.case.case_id)]


def _answer(row: Worth, doubts: Doubts) -> str:
    model = trained_model(row.case.first)
    rate = f" at {item_rate(row.items_per_s.value, row.item)}" if row.items_per_s else ""
    share = ""
    if row.facts.cost and row.roof_fraction is not None:
        share = f", {text.percent(row.roof_fraction)} of {row.facts.cost.roof}"
    ratio = f": {text.speedup(row.pair.speedup)}"
    if why_not := why_not_leading(row, doubts):
        pair, known = (row.arm, row.baseline), doubts.known(row.case.measured)
        errors = [one.short for one in known if one.withholds(pair)]
        ratio = f" ({': '.join(filter(None, (why_not, '; '.join(errors))))})"
    return (
        f"{FIRST_MODELS.get(model, model)} trains{rate} in {row.arm},"
        f" {text.seconds(row.time_s.value)} a step{share}; in {row.baseline}"
        f" {text.seconds(row.baseline_time_s.value)}{ratio}."
    )
