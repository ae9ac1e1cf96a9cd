"""How fast this card trains whole models, in words."""

from __future__ import annotations

from gpulift import text
from gpulift.analysis.arms import item_rate
from gpulift.analysis.gains import FIRST_MODELS, trained_model
from gpulift.analysis.summary import Summary, Worth

TECHNIQUE = "precision/training_step"


def answers(summary: Summary) -> list[str]:
    """A line for each model that was measured; none where none was."""
    rows = [row for row in summary.worths if row.technique == TECHNIQUE]
    return [_answer(row) for row in sorted(rows, key=lambda row: row.case.case_id)]


def _answer(row: Worth) -> str:
    model = trained_model(row.case.first)
    rate = f" at {item_rate(row.items_per_s.value, row.item)}" if row.items_per_s else ""
    share = ""
    if row.facts.cost and row.roof_fraction is not None:
        share = f", {text.percent(row.roof_fraction)} of {row.facts.cost.roof}"
    return (
        f"{FIRST_MODELS.get(model, model)} trains{rate} in {row.arm},"
        f" {text.seconds(row.time_s.value)} a step{share}; in {row.baseline}"
        f" {text.seconds(row.baseline_time_s.value)}: {text.speedup(row.pair.speedup)}."
    )
