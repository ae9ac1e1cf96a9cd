"""What committed records say of techniques on a GPU model, a figure each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from gpulift.analysis.choice import cases_of, choice_of
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.gains import Gain, gains_of, leading
from gpulift.analysis.summary import summarise


def gains_of_model(
    results: Path, folders: Sequence[Path], stems: Collection[str]
) -> dict[str, Gain]:
    """Of each technique, by the stem of its files, the figure that speaks for it in these run
    folders of one model below a folder of results; of none whose ratios are all withheld.
    GpuliftError for a file that cannot be read."""
    summaries = [summarise(run) for run in cases_of(results, folders, stems)]
    choice = choice_of(results)
    doubts = doubts_of(summaries, choice.errata, choice.today)
    return leading(one for one in gains_of(summaries, doubts) if not one.grade.withheld)
