"""That report.md says the same of the same records, to the byte, however the code is arranged."""

from __future__ import annotations

from pathlib import Path

import pytest
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


@pytest.fixture(scope="module")
def made() -> str:
    made_up = {"2026-11-21": runs_made.full_gpu(), "2026-11-22": runs_made.with_troubles()}
    # Without the model's committed reference, which grows with every new card.
    runs = [
        summarise(Run(Path(folder), tuple(map(read_record, records))))
        for folder, records in made_up.items()
    ]
    contents = page.contents_of(analysed(runs), tables=["report.csv"])
    drawn = {one.name: Figure(one.name, one.alt, Markup("")) for one in contents.drawings}
    return page.markdown(contents, drawn)


def test_the_answer_of_made_up_runs_keeps_its_bytes(made: str, tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text(made, encoding="utf-8")
    assert file.read_bytes() == KEPT.read_bytes(), f"if it should differ: cp {file} {KEPT}"


def test_more_than_a_comment_takes_is_cut_and_counted(made: str) -> None:
    short = page.cut(made, 2000)
    assert len(short) <= 2000 + 40
    kept, _, said = short.rpartition("\n\n")
    assert made.startswith(f"{kept}\n")
    assert said == f"*{made.count(chr(10), len(kept) + 1)} more lines: see the page.*\n"
    assert page.cut(made, len(made)) == made
