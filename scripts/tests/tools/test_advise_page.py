"""certificates/advise.md: what it says of made cases, and that it is of the committed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from proof.advice import Advice, Case, issue, write_certificate
from tests.conftest import CHECKOUT
from tests.proof.test_advice import CLEAN_S, ON_PROCESSOR, SLOW_S, case, row
from tools import advise_page

RESULTS = CHECKOUT / "results"


def made(folder: Path, *cases: Case) -> str:
    certificate = issue(ON_PROCESSOR, [case("", CLEAN_S), *cases])
    write_certificate(certificate, folder / advise_page.FOLDER / "cpu-x.json")
    return advise_page.page(folder)


def test_the_committed_page_is_of_the_committed_certificates() -> None:
    held = (RESULTS / advise_page.PAGE).read_text("utf-8")
    assert held == advise_page.page(RESULTS), "run python -m tools.advise_page in scripts/"


def test_a_fault_that_is_named_has_its_cost_and_its_price(tmp_path: Path) -> None:
    looped = case("optimizer_loop", SLOW_S, row("foreach", "helps", 1.5, 1.45, 1.55))
    page = made(tmp_path, looped)
    assert "\nOf 1 planted faults whose cost shows 1 was named, of 0 others 0; of\n" in page
    assert "\nwhat was named 1 of 1 prices agree, 0 of which are upper bounds. Of 0\n" in page
    assert "| `optimizer_loop` | 1 |  |  | 1 |\n" in page
    of_fault = "| `plain` | `optimizer_loop` | 1.502 [1.498, 1.507] |"
    assert f"{of_fault} `foreach`: helps | 1.50 [1.45, 1.55] | yes |\n" in page


def test_a_fault_that_is_named_though_its_cost_does_not_show_is_counted_apart(
    tmp_path: Path,
) -> None:
    page = made(tmp_path, case("optimizer_loop", CLEAN_S, row("fused", "helps", 1.1, 1.0, 1.2)))
    assert "\nOf 0 planted faults whose cost shows none was named, of 1 others 1; of\n" in page


def test_what_was_missed_or_not_measured_says_so(tmp_path: Path) -> None:
    missed = case("optimizer_loop", SLOW_S, row("foreach", "no change", 1.0, 0.98, 1.02))
    failed = Case("plain", "small_batch", reason="exit code 1: out of memory")
    page = made(tmp_path, missed, failed)
    assert "\nOf 1 planted faults whose cost shows none was named, of 0 others 0; of" in page
    assert "missed: `foreach`: no change | 1.00 [0.98, 1.02] | no |\n" in page
    assert "\nNot measured (exit code 1: out of memory): `small_batch` in 1 script.\n" in page
    assert "| `small_batch`" not in page


def test_a_false_promise_is_counted_and_named(tmp_path: Path) -> None:
    rows = (row("synchronize", "helps", 1.1, 1.05, 1.15), row("attention_math", "no change"))
    page = made(tmp_path, Case("plain", "optimizer_loop", SLOW_S, Advice(rows)))
    assert "Of 2\nchanges that do nothing 1 was told to help: below 97.5 % are, with" in page
    told = "2 judged rows are of changes that do nothing; told to help: `plain optimizer_loop sync"
    assert told in page


def test_a_result_that_was_said_to_differ_in_vain_is_named(tmp_path: Path) -> None:
    rows = (row("synchronize", "result differs"), row("attention_math", "no change"))
    page = made(tmp_path, Case("plain", "optimizer_loop", SLOW_S, Advice(rows)))
    told = "1 judged rows are of changes that do nothing; told to have another result: `plain opti"
    assert told in page


def test_where_nothing_was_planted_it_says_so_and_has_no_table(tmp_path: Path) -> None:
    page = made(tmp_path)
    assert "\n## cpu-x, small models, as they are\n" in page
    assert "--size small --same N` (in" in page
    assert "|" not in page


def test_without_a_certificate_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=r"advise: no certificate: python -m proof\.advise mak"):
        advise_page.page(tmp_path)
