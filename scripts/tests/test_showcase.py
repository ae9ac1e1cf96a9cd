"""The figures of README.md: made from committed records, and not stale."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpulift.citing import errata
from gpulift.errors import GpuliftError
from gpulift.report import showcase
from tests import runs_made
from tests.conftest import CHECKOUT
from tests.figures import summary

FIGURES = CHECKOUT / "results" / "figures"
MAKE_ANEW = "run python -m gpulift.report.showcase in scripts/, commit what it writes"
needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (CHECKOUT / ".git").exists(),
    reason="not a git checkout: which records are committed is not known",
)


@pytest.fixture(scope="module")
def committed() -> list[showcase.Exhibit]:
    """The figures of today's records."""
    results = CHECKOUT / "results"
    known = errata.read_errata(results / errata.FILE)
    fed = showcase.committed(results, showcase.FED_MODEL)
    steps = showcase.steps_and_blocks(showcase.committed(results), known)
    return [steps, showcase.ladder(fed)]


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


def test_readme_shows_them_with_their_own_texts() -> None:
    shown = dict(
        (file, alt)
        for alt, file in re.findall(
            r"!\[([^\]]*)\]\(results/figures/([^)]*)\)", (CHECKOUT / "README.md").read_text("utf-8")
        )
    )
    assert sorted(shown) == ["ladder.svg", "techniques.svg"]
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
    assert rows[0]["name"].startswith("transfer/pinned_copy/"), "of which most was measured"
    largest = max(rows, key=lambda row: float(row["value"]))
    assert largest["value"] == pytest.approx(27.0, rel=0.01)
    assert largest["launches"] == 3


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


def test_records_without_the_ladder_are_a_clear_error() -> None:
    with pytest.raises(GpuliftError, match="has no input/pipeline"):
        showcase.ladder([summary(runs_made.full_gpu())])
