"""What a qualification says of how fast a card trains."""

from __future__ import annotations

from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.machine import training
from gpulift.analysis.machine.training import answers
from gpulift.analysis.standing import JOB
from tests.figures import summary
from tests.sample import Json, arm, launches, record

EXACT = {"noise": 0.0, "launch_noise": 0.0}
ROOFS = {"bf16": "gemm/bf16", "compiled": "gemm/bf16", "fp8": "gemm/fp8"}
JOB_S = {"bf16": 0.2, "compiled": 0.16, "fp8": 0.128}
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
    return record(training.FORMATS, case, arms, launch)


def job(times_s: dict[str, float], launch: int = 0, model: str = "llama_1b") -> Json:
    """A launch of the job with these arms."""
    arms = [
        arm(
            name,
            seconds,
            cost={"flops": 7e13, "items": 8192, "item": "token", "roof": ROOFS[name]},
            **EXACT,
        )
        for name, seconds in times_s.items()
    ]
    return record(JOB, {"model": model}, arms, launch)


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
        " in tf32 45.0 ms: 1.500× [1.500, 1.500] one launch.",
    ]


def test_the_job_says_its_rate_and_what_each_setting_brings_over_the_one_before() -> None:
    launched = [job(JOB_S, launch) for launch in range(2)]
    assert answers(summary([*launched, *roofs()])) == [
        "Llama 1B trains at 64000 tokens/s in fp8: bf16 200 ms a step, 50.0 % of gemm/bf16;"
        " compiled 160 ms a step, 62.5 % of gemm/bf16, 1.250× [1.250, 1.250] over bf16;"
        " fp8 128 ms a step, 1.250× [1.250, 1.250] over compiled."
    ]
    assert answers(summary([job(JOB_S)])) == [
        "Llama 1B trains at 64000 tokens/s in fp8: bf16 200 ms a step;"
        " compiled 160 ms a step, 1.250× [1.250, 1.250] one launch over bf16;"
        " fp8 128 ms a step, 1.250× [1.250, 1.250] one launch over compiled."
    ]
    assert answers(summary([job({"bf16": 0.2}), *roofs()])) == [
        "Llama 1B trains at 40960 tokens/s in bf16: bf16 200 ms a step, 50.0 % of gemm/bf16."
    ]


def test_a_model_that_the_job_trains_has_one_line_and_the_largest_is_first() -> None:
    other = steps(GPT2, "token", 8192, 7e12, (0.064, 0.04))
    resnet = steps(RESNET, "image", 128, 3.1e12, (0.045, 0.03))
    said = answers(summary([resnet, other, job(JOB_S), job({"bf16": 0.03}, model="gpt2")]))
    assert [line.partition(" in ")[0] for line in said] == [
        "Llama 1B trains at 64000 tokens/s",
        "GPT-2 trains at 273067 tokens/s",
        "ResNet-50 trains at 4267 images/s",
    ]


def test_of_several_formats_the_fastest_speaks_that_is_no_control() -> None:
    times_s = {"fp32": 0.16, "tf32": 0.08, "bf16": 0.04, "all_bf16": 0.02}
    cost = {"items": 8192, "item": "token"}
    arms = [arm(name, seconds, cost=cost, **EXACT) for name, seconds in times_s.items()]
    made = launches(2, training.FORMATS, GPT2, arms, controls=["all_bf16"])
    assert answers(summary(made)) == [
        "GPT-2 trains at 204800 tokens/s in bf16, 40.0 ms a step;"
        " in fp32 160 ms: 4.000× [4.000, 4.000]."
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
        " (withheld: words are not padded)."
    ]
