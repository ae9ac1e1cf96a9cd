"""That a report says the same of the same records, to the byte, however the code is arranged."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from gpulift.analysis.summary import summarise
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.report import page
from gpulift.report.figures import Figure
from tests import runs_made
from tests.conftest import DATA
from tests.figures import analysed

KEPT = DATA / "report.md"


def test_the_twin_of_made_up_runs_keeps_its_bytes(tmp_path: Path) -> None:
    made_up = {"2026-11-21": runs_made.full_gpu(), "2026-11-22": runs_made.with_troubles()}
    # Without the model's committed reference, which grows with every new card.
    runs = [
        summarise(Run(Path(folder), tuple(map(read_record, records))))
        for folder, records in made_up.items()
    ]
    contents = page.contents_of(analysed(runs))
    drawn = {one.name: Figure(one.name, one.alt, Markup("")) for one in contents.drawings}
    made = tmp_path / "report.md"
    made.write_text(page.markdown(contents, drawn), encoding="utf-8")
    assert made.read_bytes() == KEPT.read_bytes(), f"if it should differ: cp {made} {KEPT}"
