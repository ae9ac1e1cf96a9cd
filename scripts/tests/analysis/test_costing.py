"""`gpulift cost` over folders of results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.analysis import cost as costing
from gpulift.analysis.arms import IDLE_GPUS
from gpulift.analysis.errata import TEXTS
from gpulift.commands.cost import duration
from gpulift.ground.errors import OK, USAGE, GpuliftError
from gpulift.ground.estimate import Estimate
from tests import sample
from tests.figures import written

pytestmark = pytest.mark.world

SHOWN = pytest.CaptureFixture[str]
TOKENS = {"items": 1000.0, "item": "token"}
H100 = {**sample.GPU_CONTEXT, "gpu": {**sample.GPU_CONTEXT["gpu"], "name": "NVIDIA H100"}}


def training(
    results: Path, context: dict[str, Any] = sample.GPU_CONTEXT, speed: float = 1.0, **arm: Any
) -> Path:
    """A step of 1,000 tokens: 0.2 s, half of it in BF16; a card of 700 W."""
    both = [
        sample.arm("fp32", 0.2 / speed, cost=TOKENS, noise=0, launch_noise=0, **arm),
        sample.arm("bf16", 0.1 / speed, cost=TOKENS, noise=0, launch_noise=0, **arm),
    ]
    made = sample.launches(3, "precision/mixed", {"model": "gpt2"}, both, context=context)
    slug = context.get("gpu", {"name": "cpu"})["name"].lower().replace(" ", "-")
    return sample.write(results / slug / "2026-11-21-abc1234", made)


def as_json(capfd: SHOWN, *arguments: str) -> list[dict[str, Any]]:
    assert cli.main(["cost", "--json", *arguments]) == OK
    found: list[dict[str, Any]] = json.loads(capfd.readouterr().out)
    return found


def test_money_is_time_times_price_and_joules_are_the_records(root: Path, capfd: SHOWN) -> None:
    training(root / "results", power_w=700.0)
    baseline, arm = as_json(capfd, "--usd-per-hour", "3.6")
    assert (baseline["arm"], baseline["baseline"], baseline["speedup"]) == ("fp32", True, None)
    assert baseline["seconds"]["value"] == pytest.approx(200e3)
    assert baseline["usd"]["value"] == pytest.approx(200)
    assert (arm["arm"], arm["item"], arm["items"], arm["gpus"]) == ("bf16", "token", 1e9, 1)
    assert arm["usd"]["value"] == pytest.approx(100)
    assert arm["speedup"]["value"] == pytest.approx(2)
    assert arm["joules"] == pytest.approx(700 * 1.01 * 100e3)
    assert arm["evidence"].startswith("3 launches, one run, one card")
    assert arm["why_no_joules"] == ""
    assert len(arm["records"]) == 3


def test_what_is_shown_with_prices_and_without(root: Path, transcript: Callable[..., None]) -> None:
    """Of two models, one of which has a step that waits for the host, and a building block."""
    folder = training(root / "results", power_w=700.0)
    training(root / "results", H100, speed=0.5)
    waits = [
        sample.arm("eager", 1e-6, cost=TOKENS, held=False),
        sample.arm("graph", 5e-7, cost=TOKENS, held=False),
    ]
    block = [sample.arm("math", 2e-3, cost=TOKENS), sample.arm("flash", 1e-3, cost=TOKENS)]
    copies = [sample.arm("pageable", 2e-3, cost={"items": 2.0, "item": "copy"})]
    sample.write(folder, sample.launches(2, "a/first", {"model": "gpt2"}, waits))
    sample.write(folder, sample.launches(2, "attention/kernels", {"tokens": 1}, block))
    sample.write(folder, sample.launches(2, "transfer/copies", {"bytes": 1}, copies))
    transcript(
        "cost",
        "cost --usd-per-hour h200=7.2",
        "cost --usd-per-hour h200=7.2 --usd-per-hour 1.8",
        "cost --all --filter attention/",
        "cost --filter attention/",
        "cost --filter transfer/ --all",
        "cost --filter optimizer/",
    )


def test_an_arm_on_several_gpus_costs_them_all_and_one_beside_idle_gpus_has_no_joules(
    root: Path, capfd: SHOWN
) -> None:
    several = {**sample.GPU_CONTEXT, "gpus": [sample.GPU_CONTEXT["gpu"]] * 2}
    training(root / "results", several, ranks=2, power_w=700.0)
    _, arm = as_json(capfd, "--usd-per-hour", "3.6")
    assert arm["gpus"] == 2
    assert arm["usd"]["value"] == pytest.approx(200)
    assert arm["joules"] == pytest.approx(700 * 1.01 * 100e3)
    assert cli.main(["cost"]) == OK
    assert "bf16 (2 GPUs)" in capfd.readouterr().out
    (file,) = training(root / "alone", several, power_w=700.0).iterdir()
    # Since 1.10 joules are of an arm's own cards alone.
    file.write_text(file.read_text("utf-8").replace('"schema": "1.10"', '"schema": "1.9"'), "utf-8")
    _, arm = as_json(capfd, str(file.parent))
    assert (arm["gpus"], arm["joules"]) == (1, None)
    assert arm["why_no_joules"] == IDLE_GPUS


def test_a_machine_without_a_gpu_has_a_price_and_no_joules(root: Path, capfd: SHOWN) -> None:
    training(root / "results", sample.CPU_CONTEXT)
    _, arm = as_json(capfd, "--usd-per-hour", "0.36")
    assert arm["gpus"] == 1
    assert arm["usd"]["value"] == pytest.approx(10, rel=0.02)
    assert arm["why_no_joules"] == costing.NO_CARD


def test_a_speedup_that_an_erratum_withholds_is_not_shown(root: Path, capfd: SHOWN) -> None:
    training(root / "results")
    cells = "".join(f'{key} = "it is wrong"\n' for key in TEXTS)
    errata = f'[[errata]]\nnumber = 1\n{cells}runs = ["*"]\nleads = false\n'
    (root / "results" / "errata.toml").write_text(errata, "utf-8")
    assert [one["speedup"] for one in as_json(capfd)] == [None, None]
    assert cli.main(["cost"]) == OK
    shown = capfd.readouterr().out
    assert "withheld: it is wrong" in shown
    assert "2.000×" not in shown


def test_a_report_has_money_where_a_price_is_given(root: Path, tmp_path: Path) -> None:
    folders = [str(training(root / "results")), str(training(root / "results", H100, speed=0.5))]
    out = tmp_path / "report"
    assert cli.main(["report", *folders, "--out", str(out), "--usd-per-hour", "3.6"]) == OK
    page, answer = written(out), (out / "report.md").read_text("utf-8")
    assert re.search(r'class="c16"><span>1\d+ / [12]\d+<br>per billion tokens</span>', page)
    assert re.search(r"<br>1\d+ USD per billion tokens</span>", page)
    assert "USD" in answer
    assert cli.main(["report", *folders, "--out", str(out)]) == OK
    assert "USD" not in (out / "report.md").read_text("utf-8")
    wrong = ["report", *folders, "--out", str(out), "--usd-per-hour", "b200=1"]
    assert cli.main(wrong) == USAGE


@pytest.mark.parametrize("given", ["", "0", "-1", "nan", "inf", "cheap", "nvidia-h200="])
def test_a_price_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(GpuliftError, match="give USD an hour as a number above 0") as error:
        costing.read_prices([given], ["nvidia-h200"])
    assert error.value.exit_code == USAGE


def test_a_price_of_a_model_without_records_is_refused() -> None:
    with pytest.raises(GpuliftError, match="there are no records of b200; known are nvidia-h200"):
        costing.read_prices(["b200=3"], ["nvidia-h200"])


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "–"),
        (Estimate(0.0001234), "<0.01"),
        (Estimate(1.5, 1.25, 1.75, 2), "1.50 [1.25, 1.75]"),
        (Estimate(1234.5), "1234"),
    ],
)
def test_money_has_three_digits(usd: Estimate | None, shown: str) -> None:
    assert costing.money(usd) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(7200.0, "2.00 h"), (90.0, "1.50 min"), (1.5, "1.50 s")]
)
def test_durations_have_the_unit_that_fits(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
