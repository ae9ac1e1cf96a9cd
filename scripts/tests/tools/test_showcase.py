"""The figures of README.md: made from committed records, not stale, and readable everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis import errata
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.today import Declared, Today, read_today
from gpulift.ground.errors import GpuliftError
from gpulift.report import plots
from tests.analysis.test_ladder import SECONDS, climbed
from tests.conftest import CHECKOUT
from tests.figures import summary
from tests.report.test_fit import fitted
from tools import showcase

pytestmark = pytest.mark.world

FIGURES = CHECKOUT / "results" / "figures"
MAKE_ANEW = "run python -m tools.showcase in scripts/, commit what it writes"
TEXT, MARK = 4.5, 3.0  # least contrasts (WCAG 2.2) of text, and of what else has to be seen
needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (CHECKOUT / ".git").exists(),
    reason="not a git checkout: which records are committed is not known",
)


@pytest.fixture(scope="module")
def committed() -> list[showcase.Exhibit]:
    """The figures of today's records."""
    return showcase.exhibits(CHECKOUT / "results")


def readme() -> str:
    return (CHECKOUT / "README.md").read_text("utf-8")


@needs_git
def test_the_committed_figures_show_what_the_committed_records_give(
    committed: list[showcase.Exhibit],
) -> None:
    assert sorted(one.file_name for one in committed) == sorted(
        file.name for file in FIGURES.glob("*.svg")
    )
    for one in committed:
        shown = showcase.values_in(FIGURES / one.file_name)
        for key in ("alt", "about", "grade"):
            assert shown[key] == one.values[key], MAKE_ANEW
        assert len(shown["rows"]) == len(one.values["rows"]), MAKE_ANEW
        for drawn, today in zip(shown["rows"], one.values["rows"], strict=True):
            row = dict(today)
            for key in ("name", "run", "speedup"):
                assert drawn.pop(key, "") == row.pop(key, ""), MAKE_ANEW
            assert drawn == pytest.approx(row, rel=1e-4), MAKE_ANEW


@needs_git
def test_the_committed_figures_say_what_they_would_say_today(
    committed: list[showcase.Exhibit], tmp_path: Path
) -> None:
    showcase.write(committed, tmp_path)
    for one in committed:
        assert words(FIGURES / one.file_name) == words(tmp_path / one.file_name), MAKE_ANEW


@needs_git
def test_readme_has_their_texts_and_what_qualify_says_today(
    committed: list[showcase.Exhibit],
) -> None:
    results = CHECKOUT / "results"
    made = showcase.in_readme(readme(), committed, showcase.qualified(results))
    assert readme() == made, MAKE_ANEW
    shown = re.findall(r"\]\(results/figures/([^)]*)\)", readme())
    assert sorted(shown) == sorted(one.file_name for one in committed)


def test_the_number_that_readme_explains_is_one_of_its_figure() -> None:
    rows = showcase.values_in(FIGURES / "ladder.svg")["rows"]
    compiled = next(row for row in rows if row["name"].endswith("/compiled"))
    assert f"- **{compiled['speedup']}**: baseline time / time with it" in readme()


@needs_git
def test_each_figure_is_of_todays_case_and_arms_and_says_how_much_it_rests_on(
    committed: list[showcase.Exhibit],
) -> None:
    today = read_today(CHECKOUT / "results")
    assert committed
    for one in committed:
        for row in one.values["rows"]:
            technique, arm = "/".join(row["name"].split("/")[:2]), row["name"].split("/")[-1]
            declared = today.declared(technique)
            assert declared is not None
            assert arm in declared.arms
        assert one.values["grade"] in ("●●●", "●●○", "●○○")
        assert f"\n{one.values['grade']} " in one.values["about"]


def words(file: Path) -> list[str]:
    """Texts of a figure, whose letters are outlines with the text as a comment before them."""
    found = re.findall(r"<!-- (.*?) -->", file.read_text("utf-8"))
    assert found
    return sorted(found)


def test_no_text_of_a_committed_figure_is_cut() -> None:
    for file in FIGURES.glob("*.svg"):
        assert not [one for one in words(file) if "…" in one]


@pytest.mark.parametrize("dark", [False, True])
def test_all_of_a_committed_figure_is_told_from_its_ground_on_light_and_dark_pages(
    dark: bool,
) -> None:
    for file in FIGURES.glob("*.svg"):
        drawn = file.read_text("utf-8")
        rules = dict(re.findall(r'\[fill="(#\w+)"\]\{fill:(#\w+)', drawn)) if dark else {}
        seen = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawn))
        ground = "#ffffff"
        assert ground in seen
        for colour in seen - {ground}:
            assert not dark or colour in rules, f"{file.name}: {colour} stays as on a light page"
            least = TEXT if colour in (plots.INK, plots.MUTED) else MARK
            shown, behind = rules.get(colour, colour), rules.get(ground, ground)
            assert contrast(shown, behind) >= least, f"{file.name}: {shown} on {behind}"


def contrast(one: str, other: str) -> float:
    """By WCAG 2.2: of relative luminance."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_ladder_is_drawn_with_speed_and_memory_where_there_is_one_of_that_model(
    tmp_path: Path,
) -> None:
    assert showcase.climbed([summary(climbed(case={"model": "gpt2"}))]) == []
    made = showcase.climbed([summary(climbed())])
    assert [one.file_name for one in made] == ["ladder.svg", "memory.svg"]
    showcase.write(made, tmp_path)
    for one in made:
        assert showcase.values_in(tmp_path / one.file_name) == one.values
        first = one.values["rows"][0]
        assert first["name"] == "job/ladder/model:llama_1b/torch_default"
        assert (first["value"], first["memory_bytes"]) == (pytest.approx(5000), 20 << 30)
    speed = tmp_path / "ladder.svg"
    assert "<text" not in speed.read_text("utf-8")  # outlines, which look the same everywhere
    about = made[0].values["about"]
    assert about.startswith("Llama 1B, 8000 tokens a step; AdamW; FP8 by torchao, tensorwise;")
    assert about.endswith("\n●●○ 3 launches, one run, one card")
    again = showcase.climbed([summary(climbed())])
    showcase.write(again, tmp_path / "again")
    assert speed.read_bytes() == (tmp_path / "again" / "ladder.svg").read_bytes()


def test_what_frees_memory_is_drawn_where_it_was_measured(tmp_path: Path) -> None:
    assert showcase.fitted([summary(climbed())]) == []
    (made,) = showcase.fitted([summary(fitted(1))])
    showcase.write([made], tmp_path)
    assert showcase.values_in(tmp_path / "fit.svg") == made.values
    assert made.values["grade"] == "●○○"


def test_without_an_arm_in_a_launch_or_the_baselines_memory_nothing_is_drawn() -> None:
    records = fitted(2)
    records[1]["arms"][1] |= {"outcome": "failed", "reason": "no room"}
    assert showcase.fitted([summary(records)]) == []
    records = fitted(2)
    for one in records:
        one["arms"][0]["peak_device_bytes"] = 0
    assert showcase.fitted([summary(records)]) == []


def todays(**changed: Any) -> Today:
    declared: dict[str, Any] = {"arms": tuple(SECONDS), "sweep": {"model": ("llama_1b",)}}
    return Today({"job/ladder": Declared(**{**declared, **changed})})


@pytest.mark.parametrize(
    "changed",
    [{"arms": ("tf32", "bf16", "compiled")}, {"sweep": {"model": ("llama_3b",)}}],
    ids=["an arm", "the case"],
)
def test_what_todays_technique_has_no_more_is_not_drawn(changed: dict[str, Any]) -> None:
    runs = [summary(climbed())]
    assert showcase.climbed(runs, doubts_of(runs, (), todays()))
    assert showcase.climbed(runs, doubts_of(runs, (), todays(**changed))) == []


def test_what_an_erratum_withholds_is_not_drawn(tmp_path: Path) -> None:
    file = tmp_path / errata.FILE
    cells = "".join(f'{key} = "x"\n' for key in errata.TEXTS)
    file.write_text(
        f'[[errata]]\nnumber = 1\n{cells}runs = ["*"]\nleads = false\ntechniques = "ladder"\n'
    )
    runs = [summary(climbed())]
    assert showcase.climbed(runs, doubts_of(runs, errata.read_errata(file))) == []


def test_a_changed_value_is_noticed(tmp_path: Path) -> None:
    made = showcase.climbed([summary(climbed())])
    showcase.write(made, tmp_path)
    changed = showcase.climbed([summary(climbed(count=2))])
    assert showcase.values_in(tmp_path / made[0].file_name) != changed[0].values


def test_the_length_of_a_row_is_that_of_the_model() -> None:
    sizes = (CHECKOUT / "workloads" / "python" / "gpulift_work" / "llama.py").read_text("utf-8")
    found = re.search(r'"llama_1b": LlamaSize\((?:\d+, ){5}(\d+),', sizes)
    assert found is not None
    assert int(found[1]) == showcase.ROW_TOKENS


def test_a_figure_without_values_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    file.write_text("<svg/>")
    with pytest.raises(GpuliftError, match="holds no values"):
        showcase.values_in(file)


def test_no_committed_records_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=r"no files|no committed records"):
        showcase.exhibits(tmp_path)
    if shutil.which("git"):
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        with pytest.raises(GpuliftError, match="no committed records"):
            showcase.exhibits(tmp_path)


def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuliftError, match="cannot be written"):
        showcase.write([], tmp_path / "file" / "below")
