"""What a certificate of advice says of made cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.verdicts.stats import upper_bound
from proof.advice import (
    COSTS_NOTHING,
    MISSED,
    NAMED,
    NOT_MEASURED,
    NOTE,
    Advice,
    Case,
    Facts,
    Planted,
    Row,
    Span,
    fault_of,
    issue,
    names_to_try,
    read_certificate,
    write_certificate,
)

ON_GPU = Facts("nvidia-h200", "large", "580.1", "abc1234", False, True, "2026-11-30")
ON_PROCESSOR = Facts("cpu-x", "small", "", "abc1234", False, False, "2026-11-30")
CLEAN_S = (0.100, 0.101, 0.099, 0.100)
SLOW_S = (0.150, 0.152, 0.149, 0.150)


def row(name: str, verdict: str, *gain: float) -> Row:
    return Row(name, verdict, Span(*gain) if gain else None)


def case(fault: str, step_s: tuple[float, ...], *rows: Row, script: str = "plain") -> Case:
    return Case(script, fault, step_s, Advice(rows, torch="2.11.0"))


def planted(fault: str, step_s: tuple[float, ...], *rows: Row) -> Planted:
    (made,) = issue(ON_GPU, [case("", CLEAN_S), case(fault, step_s, *rows)]).planted
    return made


def test_a_fault_is_named_and_its_price_agrees() -> None:
    made = planted("optimizer_loop", SLOW_S, row("foreach", "helps", 1.5, 1.45, 1.55))
    assert (made.outcome, made.row, made.verdict, made.agrees) == (NAMED, "foreach", "helps", True)
    assert made.size is not None
    assert made.size.mid == pytest.approx(1.5, rel=0.01)
    assert made.size.above_1


def test_a_price_beside_the_truth_does_not_agree() -> None:
    made = planted("optimizer_loop", SLOW_S, row("foreach", "helps", 1.1, 1.05, 1.15))
    assert (made.outcome, made.agrees) == (NAMED, False)


def test_a_fault_whose_row_promises_nothing_is_missed() -> None:
    made = planted("optimizer_loop", SLOW_S, row("foreach", "no change", 1.0, 0.98, 1.02))
    assert (made.outcome, made.row, made.verdict) == (MISSED, "foreach", "no change")
    assert made.agrees is False


def test_a_fault_without_any_row_is_missed() -> None:
    made = planted("optimizer_loop", SLOW_S, row("tf32", "helps", 1.5, 1.4, 1.6))
    assert (made.outcome, made.row, made.agrees) == (MISSED, "none", None)


def test_a_fault_that_costs_nothing_need_not_be_named() -> None:
    assert planted("optimizer_loop", CLEAN_S).outcome == COSTS_NOTHING


def test_the_remedy_that_is_the_absence_of_the_fault_has_its_price() -> None:
    rows = row("fused", "helps", 1.8, 1.7, 1.9), row("foreach", "helps", 1.5, 1.4, 1.6)
    assert planted("optimizer_loop", SLOW_S, *rows).row == "foreach"


def test_of_several_counts_of_workers_the_best_has_the_price() -> None:
    rows = row("workers_2", "helps", 1.2, 1.1, 1.3), row("workers_4", "helps", 1.5, 1.4, 1.6)
    assert planted("one_worker", SLOW_S, *rows).row == "workers_4"


@pytest.mark.parametrize(("gain", "agrees"), [((2.0, 1.9, 2.1), True), ((1.2, 1.1, 1.3), False)])
def test_an_upper_bound_agrees_where_it_is_above_the_truth(
    gain: tuple[float, float, float], agrees: bool
) -> None:
    made = planted("slow_decoding", SLOW_S, row("input", "upper bound", *gain))
    assert (made.outcome, made.agrees) == (NAMED, agrees)


def test_an_upper_bound_that_may_be_nothing_names_nothing() -> None:
    made = planted("slow_decoding", SLOW_S, row("input", "upper bound", 1.0, 0.99, 1.01))
    assert made.outcome == MISSED


def test_half_a_batch_is_priced_by_what_a_whole_one_takes() -> None:
    made = planted(
        "small_batch", (0.075, 0.076, 0.075, 0.075), row("batch_2x", "other work", 1.5, 1.4, 1.6)
    )
    assert made.size is not None
    assert made.size.mid == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(("note", "outcome"), [("attention by hand: 12", NAMED), ("other", MISSED)])
def test_attention_by_hand_is_named_by_a_note(note: str, outcome: str) -> None:
    clean = Case("no_loader", "", CLEAN_S)
    by_hand = Case("no_loader", "attention_by_hand", SLOW_S, Advice((), (note,)))
    (made,) = issue(ON_PROCESSOR, [clean, by_hand]).planted
    assert made.outcome == outcome
    assert (made.row == NOTE) == (outcome == NAMED)


@pytest.mark.parametrize(("script", "first"), [("plain", "tf32"), ("hf_trainer", "bf16")])
def test_fp32_is_priced_by_what_the_script_is_without_it(script: str, first: str) -> None:
    assert fault_of(script, "fp32").rows[0] == first


def test_a_single_pass_says_nothing_of_agreement() -> None:
    cases = [case("", CLEAN_S[:1]), case("item", SLOW_S[:1], row("reads", "helps", 1.5, 1.4, 1.6))]
    (made,) = issue(ON_GPU, cases).planted
    assert made.agrees is None


def test_what_was_not_measured_says_why() -> None:
    skipped = Case("plain", "item", reason="costs nothing without a GPU")
    unfinished = Case("plain", "fp32", SLOW_S)
    cases = [case("", CLEAN_S), skipped, unfinished]
    outcomes = [(one.outcome, one.reason) for one in issue(ON_GPU, cases).planted]
    assert outcomes == [(NOT_MEASURED, skipped.reason), (NOT_MEASURED, "its trial did not end")]


def test_help_of_what_does_nothing_is_counted() -> None:
    rows = (
        row("vary_1", "helps", 1.02, 1.01, 1.03),
        row("attention_flash", "no change", 1.0, 0.99, 1.01),
        row("synchronize", "not applicable"),  # was not judged
        row("tf32", "helps", 1.5, 1.4, 1.6),  # may do something
    )
    idle = issue(ON_GPU, [case("", CLEAN_S, *rows)]).idle
    assert (idle.rows, idle.false_helps) == (2, ("plain vary_1",))
    assert idle.upper == upper_bound(1, 2)


def test_the_remedy_of_a_fault_is_not_idle() -> None:
    synchronize = row("synchronize", "helps", 1.5, 1.4, 1.6)
    idle = issue(ON_GPU, [case("synchronize", SLOW_S, synchronize)]).idle
    assert (idle.rows, idle.upper) == (0, 1.0)


def test_more_does_nothing_without_a_gpu() -> None:
    idle = issue(ON_PROCESSOR, [case("", CLEAN_S, row("tf32", "helps", 1.1, 1.05, 1.2))]).idle
    assert idle.false_helps == ("plain tf32",)


def test_a_certificate_is_read_as_it_was_written(tmp_path: Path) -> None:
    fault = case("item", SLOW_S, row("reads", "helps", 1.5, 1.4, 1.6))
    made = issue(ON_GPU, [case("", CLEAN_S), fault])
    assert made.torch == ("2.11.0",)
    write_certificate(made, tmp_path / "of.json")
    assert read_certificate(tmp_path / "of.json") == made


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="cannot be read"):
        read_certificate(tmp_path / "none.json")


def test_what_names_a_fault_is_tried_and_what_does_nothing() -> None:
    assert names_to_try("lightning_fit", "one_worker") == ["synchronize", "workers"]
    assert "attention_flash" in names_to_try("plain", "fp32")
    assert names_to_try("plain", "") == []  # all
