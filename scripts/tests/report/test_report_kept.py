"""That a report says the same of the same records, however the code is arranged."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from markupsafe import Markup

from gpulift.analysis.analyse import Analysis
from gpulift.analysis.summary import summarise
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.report import page
from gpulift.report.figures import Figure
from tests import runs_made
from tests.figures import analysed, undrawn_pages
from tests.report.test_report_facts import training
from tests.sample import Json

pytestmark = pytest.mark.world


def analysis_of(*groups: Sequence[Json]) -> Analysis:
    """Runs without the model's committed reference, which grows with every new card."""
    return analysed(
        [
            summarise(Run(Path(f"2026-11-2{day}"), tuple(map(read_record, records))))
            for day, records in enumerate(groups, 1)
        ]
    )


def markdown() -> str:
    contents = page.contents_of(
        analysis_of(runs_made.full_gpu(), runs_made.with_troubles()), tables=["report.csv"]
    )
    drawn = {one.name: Figure(one.name, one.alt, Markup("")) for one in contents.drawings}
    return page.markdown(contents, drawn)


def words(source: str) -> str:
    """What a page says, a row a line."""
    body = source[source.index("<body>") :]
    shown = re.sub(r"<(script|style|svg|nav)\b.*?</\1>", "", body, flags=re.DOTALL)
    cells = re.sub(r"\s*<t[dh]\b[^>]*>\s*", " | ", re.sub(r"\s*<br>\s*", "; ", shown))
    lines = html.unescape(re.sub(r"<[^>]*>", "", cells)).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def test_the_answer_in_markdown(kept: Callable[[str], None]) -> None:
    kept(markdown())


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([runs_made.full_gpu(), runs_made.without_gpu()], id="gpu and host"),
        pytest.param([runs_made.with_troubles(), runs_made.of_ranks_and_disks()], id="troubles"),
        pytest.param([training(recomputed_share=0.25), runs_made.duet()], id="training and duet"),
    ],
)
def test_the_pages(groups: list[list[Json]], kept: Callable[[str], None]) -> None:
    made = undrawn_pages(analysis_of(*groups))
    kept("\n\n".join(f"=== {file}\n{words(made[file])}" for file in sorted(made)) + "\n")


def test_more_than_a_comment_takes_is_cut_and_counted() -> None:
    made = markdown()
    short = page.cut(made, 2000)
    text, _, said = short.rpartition("\n\n")
    assert len(text) <= 2000
    assert made.startswith(f"{text}\n")
    assert said == f"*{made.count(chr(10), len(text) + 1)} more lines: see the page.*\n"
    assert page.cut(made, len(made)) == made
