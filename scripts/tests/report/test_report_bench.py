"""The page of one script: a screen, and nothing of what it did not measure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.facts import UNKNOWN
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.ground.errors import GpuliftError
from gpulift.records.read import read_results
from gpulift.report import bench, bench_page
from tests import sample
from tests.conftest import CHECKOUT

ARMS = [sample.arm("eager", 1e-2), sample.arm("compiled", 5e-3)]
HOSTILE = "<img src=x onerror=alert(1)>|`\x1b[31m"


def summary_of(folder: Path, arms: list[sample.Json], **more: Any) -> Summary:
    made = sample.launches(2, "own/step", {"n": 1}, arms, source={"step.py": "1a" * 32}, **more)
    sample.write(folder, made)
    state = {"options": {"modules": "own.step-1a2b3c4d"}, "state": "complete"}
    (folder / "run.json").write_text(json.dumps(state), encoding="utf-8")
    (run,) = read_results([folder])
    return summarise(run)


def written(summary: Summary, out: Path) -> tuple[str, str]:
    """The page, and the same in Markdown."""
    page = bench_page.write(summary, out)
    assert page == out / "index.html"
    return page.read_text(encoding="utf-8"), page.with_name("report.md").read_text(encoding="utf-8")


def test_it_is_a_screen_of_the_winner_the_arms_and_the_conditions(tmp_path: Path) -> None:
    html, markdown = written(summary_of(tmp_path / "run", ARMS), tmp_path / "report")
    for page in (html.partition("<body>")[2], markdown):
        assert re.search(r"n 1: compiled ran [12]\.\d+ \[.*\] times as fast as eager", page)
        assert "own/step on NVIDIA H200" in page
        assert "against eager" in page
        assert "./gpulift bench step.py --launches 3 --arm-time 0.3" in page
        assert "driver 580.159.04" in page
        for foreign in ("roof", "claim", "datasheet", "certificate", "gpulift run", "Expected"):
            assert foreign not in page, foreign
    body = re.sub(r"<details>.*?</details>", "", html.partition("<body>")[2], flags=re.DOTALL)
    words = re.sub(r"<[^>]*>", " ", body).split()
    assert len(words) < 200, "with raw windows and records folded"
    assert html.count("<details>") == 2
    assert "<svg" not in body
    assert "<script" not in html
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert len({line.count("|") for line in rows}) == 1


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        ({"bytes": 1.2e10, "items": 0.0}, ["1.20 TB/s", "—", "25 % of device_memory"]),
        ({"flops": 5e11, "items": 0.0}, ["—", "50.0 TFLOP/s", "—"]),
        (
            {"bytes": 1.0, "flops": 5e12, "roof": "gemm/bf16", "items": 0.0},
            ["100.0 B/s", "500 TFLOP/s", "50.5 % of gemm/bf16"],
        ),
    ],
)
def test_work_is_told_as_rates_and_as_a_share_of_the_peak(
    tmp_path: Path, cost: sample.Json, told: list[str]
) -> None:
    found = summary_of(tmp_path, [sample.arm("eager", 1e-2, cost=cost)])
    found = summarise(found.run, find_reference(CHECKOUT / "results", "nvidia-h200"))
    (row,) = bench.rows(found)
    names = ("bytes per second", "operations per second", "of peak")
    assert [row.cells[name].replace(UNKNOWN, "—") for name in names] == told


def test_what_failed_and_what_was_skipped_stands_on_it(tmp_path: Path) -> None:
    arms = [*ARMS, sample.skipped_arm("jit", "no package numba", "install numba")]
    html, markdown = written(summary_of(tmp_path / "run", arms), tmp_path / "report")
    for page in (html, markdown):
        assert "jit: no package numba. install numba" in page


def test_a_run_in_which_nothing_was_measured_has_a_page_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    sample.write(folder, [sample.unmeasured("own/step", {}, "error", "make raised ValueError")])
    (run,) = read_results([folder])
    for page in written(summarise(run), tmp_path / "report"):
        assert "make raised ValueError" in page
        assert "<table" not in page
        assert "| --- |" not in page


def test_nothing_of_a_record_is_markup(tmp_path: Path) -> None:
    arms = [sample.arm("eager", 1e-2), sample.arm(HOSTILE, 5e-3)]
    summary = summary_of(tmp_path / "run", arms, notes={HOSTILE: HOSTILE})
    for page in written(summary, tmp_path / "report"):
        assert "<img" not in page
        assert "\x1b" not in page


def test_it_is_written_over_its_own_page_and_over_no_other(tmp_path: Path) -> None:
    summary = summary_of(tmp_path / "run", ARMS)
    first = written(summary, tmp_path / "report")
    assert written(summary, tmp_path / "report") == first
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("mine", encoding="utf-8")
    with pytest.raises(GpuliftError, match="is there already and no report of ours"):
        bench_page.write(summary, tmp_path / "other")
