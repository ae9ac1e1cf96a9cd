"""`gpulift qualify --burn` on four simulated cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.engine import runs
from gpulift.ground.errors import FAILED, INCONCLUSIVE, NOTHING_RAN, OK, USAGE

pytestmark = pytest.mark.world

EVEN = "7e14 7.001e14 6.999e14 7e14"
SHOWN = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cards(root: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("FAKE_BENCH", "burn")
    monkeypatch.setenv("FAKE_BURN", EVEN)
    return monkeypatch


def test_all_cards_are_loaded_at_once_and_each_has_four_lines(root: Path, capfd: SHOWN) -> None:
    out = root / "burnt"
    assert cli.main(["qualify", "--burn", "60s", "--out", str(out)]) == OK
    said = capfd.readouterr()
    assert "one product on 4 GPUs: 3 launches of some 22 s" in said.err
    lines = said.out.splitlines()
    assert len(lines) == 4 * 4 + 1
    assert lines[:4] == [
        "✓ GPU 1a2b3c4d: fp32 50.0 TFLOP/s, bf16 700 TFLOP/s, 100.0 % of the cards' median",
        "  heat: the driver does not say",
        "  power: at most 699 W of the driver does not say",
        "  clock: 1980 MHz, only sw_power_cap, which is normal under load;"
        " results right in 3 of 3 launches",
    ]
    assert lines[-1].startswith("✓ Pass (")
    assert lines[-1].endswith("2.70 s of sustained load on each GPU")
    for number in range(4):
        kept = json.loads((out / f"burn{number}" / "qualification.json").read_text())
        assert "fixed/gemm/bf16/sustained" in {one["id"] for one in kept["checks"]}
        state = json.loads((out / f"burn{number}" / "run.json").read_text())
        assert (state["state"], state["options"]["together"]) == (runs.COMPLETE, 4)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ("7e14 7e14 7e14 6e14", "85.7 % of the cards' median"),
        ("7e14 7e14 7e14 -7e14", "results right in 2 of 3 launches"),
    ],
)
def test_a_card_that_is_slow_or_wrong_fails(
    root: Path, cards: pytest.MonkeyPatch, capfd: SHOWN, rates: str, words: str
) -> None:
    cards.setenv("FAKE_BURN", rates)
    assert cli.main(["qualify", "--burn", "60s", "--out", str(root / "burnt")]) == FAILED
    out = capfd.readouterr().out.splitlines()
    assert words in "".join(out[12:16])
    assert out[-1].startswith("✗ Fail (1 check)")
    assert "4d5e6f7a" in out[-1]


def test_without_a_folder_the_parts_lie_beside_a_run_and_one_card_may_be_named(
    root: Path, capfd: SHOWN
) -> None:
    assert cli.main(["qualify", "--burn", "10s", "--gpu", "2", "--json"]) == INCONCLUSIVE
    said = capfd.readouterr()  # of one launch
    (document,) = json.loads(said.out)
    assert "1 launch of some 22 s" in said.err
    (part,) = (root / "results" / "nvidia-h200").glob("*.burn2")
    assert document["run"] == f"nvidia-h200/{part.name}"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--quick", "60s"], USAGE, "leave --quick out"),
        (["--filter", "x"], USAGE, "leave --filter out"),
        (["--explain", "health"], USAGE, "leave --explain out"),
        (["--gpus", "7"], USAGE, "--gpus 7: "),
        (["--expect-gpus", "8"], FAILED, "health/gpus"),
    ],
)
def test_what_is_refused_or_missing(
    root: Path, capfd: SHOWN, arguments: list[str], code: int, words: str
) -> None:
    assert cli.main(["qualify", "--burn", "60s", "--out", str(root / "b"), *arguments]) == code
    said = capfd.readouterr()
    assert words in said.err + said.out


def test_without_a_gpu_nothing_can_run(root: Path, cards: pytest.MonkeyPatch, capfd: SHOWN) -> None:
    cards.setenv("FAKE_BENCH", "ok")
    assert cli.main(["qualify", "--burn", "60s"]) == NOTHING_RAN
    assert "--gpus all: " in capfd.readouterr().err
