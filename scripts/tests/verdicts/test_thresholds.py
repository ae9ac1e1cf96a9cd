"""The file that says from which change on a row counts as changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.verdicts import thresholds
from gpulift.verdicts.decision import DUET, Margins

ROWS = [("a/b", "a/b/n:1", f"a/b/n:1/{arm}") for arm in ("slow", "fast")]


def file_of(folder: Path, content: str) -> Path:
    file = folder / "limits.toml"
    file.write_text(content, encoding="utf-8")
    return file


def test_a_file_gives_patterns_their_least_change(tmp_path: Path) -> None:
    file = file_of(tmp_path, '[rows."a/.*"]\nleast_change = 0.05\n[rows.fast]\nleast_change=0.1\n')
    read = thresholds.read(file)
    assert read == {"a/.*": 0.05, "fast": 0.1}
    assert thresholds.of_rows(read, ROWS) == {"a/b/n:1/slow": 0.05, "a/b/n:1/fast": 0.1}
    assert thresholds.read(None) == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[rows", "limits.toml: not TOML"),
        ("", "rows is missing"),
        ("[rows]\n", 'limits.toml: names no rows: begin with [rows."REGEX"]'),
        ("rows = 3\n", "rows must be object, not int"),
        ("[row.a]\nleast_change = 0.1\n", "rows is missing"),
        ("[rows.a]\nleast = 0.1\n", "rows.a.least_change is missing"),
        ("[rows.a]\n", "rows.a.least_change"),
        ("[rows.a]\nleast_change = 0.1\nleast = 1\n", "rows.a.least is not known here"),
        ('[rows.a]\nleast_change = "5 %"\n', "rows.a.least_change must be float, not str"),
        ("[rows.a]\nleast_change = 5\n", "rows.a.least_change must be float < 1.0"),
        ("[rows.a]\nleast_change = 0\n", "rows.a.least_change must be float > 0.0"),
        ("[rows.a]\nleast_change = nan\n", "rows.a.least_change"),
        ('[rows."a("]\nleast_change = 0.1\n', "'a(' is not a regular expression"),
        ("[rows.-a]\nleast_change = 0.1\n", "'-a': name the rows that it is for"),
    ],
)
def test_any_other_file_is_one_line(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(GpuliftError) as error:
        thresholds.read(file_of(tmp_path, content))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == USAGE


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=r"none\.toml: cannot be read: No such file"):
        thresholds.read(tmp_path / "none.toml")


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(GpuliftError, match="--thresholds: 'transfr/' matches no row") as error:
        thresholds.of_rows({"a/b": 0.1, "transfr/": 0.05}, ROWS)
    assert error.value.exit_code == USAGE


def test_what_a_user_does_not_call_a_change_is_none() -> None:
    assert DUET.asked(None) == DUET
    assert DUET.asked(0.05) == Margins(least=0.05, equivalent=0.05)
    assert DUET.asked(0.001) == Margins(least=0.001, equivalent=DUET.equivalent)
    assert DUET.asked(0.001).above_floor(0.004) == Margins(0.004, DUET.equivalent)
