"""The figures of README.md: made from committed records, and not stale."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpulift.analysis import errata
from gpulift.analysis.choice import choice_of
from gpulift.ground.errors import GpuliftError
from tests import runs_made
from tests.analysis.test_ladder import climbed
from tests.conftest import CHECKOUT
from tests.figures import summary
from tools import showcase

pytestmark = pytest.mark.world

FIGURES = CHECKOUT / "results" / "figures"
MAKE_ANEW = "run python -m tools.showcase in scripts/, commit what it writes"
needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (CHECKOUT / ".git").exists(),
    reason="not a git checkout: which records are committed is not known",
)


@pytest.fixture(scope="module")
def committed() -> list[showcase.Exhibit]:
    """The figures of today's records."""
    return showcase.exhibits(CHECKOUT / "results")


@needs_git
def test_the_committed_figures_show_what_the_committed_records_give(
    committed: list[showcase.Exhibit],
) -> None:
    for one in committed:
        shown = showcase.values_in(FIGURES / one.file_name)
        assert shown["alt"] == one.values["alt"], MAKE_ANEW
        assert len(shown["rows"]) == len(one.values["rows"]), MAKE_ANEW
        for drawn, today in zip(shown["rows"], one.values["rows"], strict=True):
            row = dict(today)
            for key in ("name", "run"):
                assert drawn.pop(key) == row.pop(key), MAKE_ANEW
            assert drawn == pytest.approx(row, rel=1e-4), MAKE_ANEW


@needs_git
def test_the_committed_figures_say_what_they_would_say_today(
    committed: list[showcase.Exhibit], tmp_path: Path
) -> None:
    showcase.write(committed, tmp_path)
    for one in committed:
        assert words(FIGURES / one.file_name) == words(tmp_path / one.file_name), MAKE_ANEW


def words(file: Path) -> list[str]:
    """Texts of a figure, whose letters are outlines with the text as a comment before them."""
    found = re.findall(r"<!-- (.*?) -->", file.read_text("utf-8"))
    assert found
    return sorted(found)


def test_no_text_of_a_committed_figure_is_cut() -> None:
    for file in FIGURES.glob("*.svg"):
        assert not [one for one in words(file) if "…" in one]


def test_readme_shows_them_with_their_own_texts() -> None:
    shown = dict(
        (file, alt)
        for alt, file in re.findall(
            r"!\[([^\]]*)\]\(results/figures/([^)]*)\)", (CHECKOUT / "README.md").read_text("utf-8")
        )
    )
    assert sorted(shown) == sorted(file.name for file in FIGURES.glob("*.svg"))
    for file, alt in shown.items():
        assert alt == showcase.values_in(FIGURES / file)["alt"], MAKE_ANEW


def test_a_written_figure_holds_its_values(tmp_path: Path) -> None:
    made = showcase.steps_and_blocks([summary(runs_made.full_gpu())])
    again = showcase.steps_and_blocks([summary(runs_made.full_gpu())])
    showcase.write([made], tmp_path / "new")
    showcase.write([again], tmp_path / "again")
    file = tmp_path / "new" / made.file_name
    assert showcase.values_in(file) == made.values
    assert file.read_bytes() == (tmp_path / "again" / made.file_name).read_bytes()
    assert "<text" not in file.read_text("utf-8")  # outlines, which look the same everywhere
    rows = made.values["rows"]
    assert rows[0]["name"].startswith("precision/matmul/"), "the largest gain"
    largest = rows[0]
    assert largest["value"] == pytest.approx(27.0, rel=0.01)
    assert largest["launches"] == 3


def test_what_an_erratum_withholds_is_not_drawn(tmp_path: Path) -> None:
    file = tmp_path / errata.FILE
    cells = "".join(f'{key} = "x"\n' for key in errata.TEXTS)
    file.write_text(f'[[errata]]\n{cells}runs = ["*"]\nleads = false\ntechniques = "matmul"\n')
    runs = [summary(runs_made.full_gpu())]
    rows = showcase.steps_and_blocks(runs, choice_of(tmp_path)).values["rows"]
    every = showcase.steps_and_blocks(runs).values["rows"]
    assert rows == [row for row in every if not row["name"].startswith("precision/matmul/")]
    assert len(rows) < len(every)


def test_a_ladder_is_drawn_where_there_is_one_of_that_model(tmp_path: Path) -> None:
    assert showcase.climbed([summary(climbed(case={"model": "gpt2"}))]) is None
    made = showcase.climbed([summary(climbed())])
    assert made is not None
    showcase.write([made], tmp_path)
    assert showcase.values_in(tmp_path / "ladder.svg") == made.values
    first = made.values["rows"][0]
    assert first["name"] == "job/ladder/model:llama_1b/torch_default"
    assert first["value"] == pytest.approx(5000)
    assert made.values["alt"].startswith("Llama 1B on NVIDIA H200, tokens a second by setting")


def test_a_changed_value_is_noticed(tmp_path: Path) -> None:
    made = showcase.steps_and_blocks([summary(runs_made.full_gpu())])
    showcase.write([made], tmp_path)
    changed = showcase.steps_and_blocks([summary(runs_made.full_gpu()[:-3])])
    assert showcase.values_in(tmp_path / made.file_name) != changed.values


def test_a_figure_without_values_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    file.write_text("<svg/>")
    with pytest.raises(GpuliftError, match="holds no values"):
        showcase.values_in(file)


def test_no_committed_records_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=r"no files|no committed records"):
        showcase.committed(tmp_path)
    if shutil.which("git"):
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        with pytest.raises(GpuliftError, match="no committed records"):
            showcase.committed(tmp_path)


def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuliftError, match="cannot be written"):
        showcase.write([], tmp_path / "file" / "below")
