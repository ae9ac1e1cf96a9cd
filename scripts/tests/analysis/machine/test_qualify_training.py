"""What a qualification says of how fast a card trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.machine import training
from gpulift.analysis.machine.training import answers
from gpulift.ground.errors import OK
from tests.figures import summary
from tests.sample import Json, arm, launches, record

pytestmark = pytest.mark.world

EXACT = {"noise": 0.0, "launch_noise": 0.0}
GPT2, RESNET = {"model": "gpt2"}, {"model": "resnet50_128"}


def steps(
    case: Json,
    item: str,
    items: float,
    flops: float,
    times_s: tuple[float, float],
    launch: int = 0,
) -> Json:
    """A launch of both arms."""
    arms = [
        arm(
            name,
            seconds,
            cost={"flops": flops, "items": items, "item": item, "roof": f"gemm/{name}"},
            **EXACT,
        )
        for name, seconds in zip(("tf32", "bf16"), times_s, strict=True)
    ]
    return record(training.TECHNIQUE, case, arms, launch)


def roofs() -> list[Json]:
    cost = {"flops": 1.4e12, "roof": "gemm/bf16"}
    return launches(3, "ceiling/gemm", {}, [arm("bf16", 2e-3, cost=cost, **EXACT)])


def test_each_model_has_a_line_with_rate_time_and_share() -> None:
    resnet = steps(RESNET, "image", 128, 3.1e12, (0.045, 0.03))
    gpt2 = [steps(GPT2, "token", 8192, 7e12, (0.064, 0.04), launch) for launch in (0, 1)]
    assert answers(summary([resnet, *gpt2, *roofs()])) == [
        "GPT-2 trains at 204800 tokens/s in bf16, 40.0 ms a step, 25.0 % of gemm/bf16;"
        " in tf32 64.0 ms: 1.600× [1.600, 1.600].",
        "ResNet-50 trains at 4267 images/s in bf16, 30.0 ms a step, 14.8 % of gemm/bf16;"
        " in tf32 45.0 ms (one launch).",
    ]


def test_without_a_roof_there_is_no_share_and_without_steps_no_line() -> None:
    (said,) = answers(summary([steps(GPT2, "token", 8192, 7e12, (0.064, 0.04))]))
    assert "40.0 ms a step; in tf32" in said
    assert answers(summary(roofs())) == []


def test_in_place_of_a_ratio_that_is_withheld_stands_the_error() -> None:
    made = summary([steps(GPT2, "token", 8192, 7e12, (0.064, 0.04))])
    known = Erratum(
        *("words are not padded", "records", "wrong", "later", ("*",), "", "", "", "", (), None),
        leads=False,
    )
    assert answers(made, doubts_of([made], [known])) == [
        "GPT-2 trains at 204800 tokens/s in bf16, 40.0 ms a step; in tf32 64.0 ms"
        " (known error: words are not padded)."
    ]


def test_qualify_shows_it_beside_its_verdicts(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "answers", lambda *_: ["GPT-2 trains at 1 token/s"])
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["qualify", "--out", str(root / "run")]) == OK
    assert "GPT-2 trains at 1 token/s\n" in capfd.readouterr().out
