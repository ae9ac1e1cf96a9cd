"""precision/quantisation: logits of quantised layers against exact ones, and what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

from gpulift_work.llama import LlamaSize  # noqa: E402

CPU = torch.device("cpu")
SIZE = LlamaSize(layers=4, width=256, heads=4, key_heads=2, inner=1024, tokens=32, vocabulary=1024)
ARMS = ["bf16", "int8_weight_only", "int8_dynamic", "fp8_weight_only", "fp8_dynamic"]


@pytest.fixture(name="settings", autouse=True)
def settings_of_the_compiler(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What of them is changed, which would last for other tests."""
    changed: list[str] = []
    setter = "recommended_inductor_config_setter"
    monkeypatch.setattr(f"torchao.quantization.utils.{setter}", lambda: changed.append("library"))
    monkeypatch.setattr(technique, setter, lambda: changed.append("technique"))
    return changed


@pytest.fixture(autouse=True)
def eager_products_on_the_host(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """By rows, where a processor has products in FP8 by tensor alone."""

    def scaled(left: Any, right: Any, **said: Any) -> Any:
        assert left.dtype == right.dtype == torch.float8_e4m3fn
        found = (left.float() * said["scale_a"]) @ (right.float() * said["scale_b"])
        return found.to(said["out_dtype"])

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    monkeypatch.setattr("torchao.quantization.quant_api._check_hardware_support", lambda _: None)
    monkeypatch.setattr(technique, "require_products", lambda arm, decode, device: None)
    with torch.compiler.set_stance("force_eager"):
        yield


def answer_of(technique: ModuleType, arm: str, tokens: int = 1) -> Any:
    answer = technique.Answer(SIZE, tokens, CPU)
    technique.quantise(answer.model, arm)
    answer.step()
    return answer


def over_formats(technique: ModuleType, answer: Any, arm: str) -> float:
    return float(answer.distance() / technique.FORMATS[arm])


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("tokens", [1, 32])
def test_logits_are_no_further_off_than_their_formats_make_them(
    technique: ModuleType, arm: str, tokens: int
) -> None:
    answer = answer_of(technique, arm, tokens)
    tolerance = technique.TECHNIQUE["check"]["tolerance"]
    assert 0.3 < over_formats(technique, answer, arm) < tolerance
    assert answer.logits.dtype == torch.bfloat16


def test_weights_of_4_bits_are_within_their_tolerance_and_found_in_place_of_8(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = technique.config_of("int4_tinygemm")
    quantization = technique.quantization
    plain = quantization.IntxWeightOnlyConfig(torch.int4, quantization.PerGroup(128))
    monkeypatch.setattr(technique, "config_of", lambda arm: plain)
    answer = answer_of(technique, "int4_tinygemm")
    tolerance = technique.TECHNIQUE["check"]["tolerance"]
    assert 0.3 < over_formats(technique, answer, "int4_tinygemm") < tolerance
    assert over_formats(technique, answer, "fp8_dynamic") > tolerance
    assert (packed.group_size, packed.int4_packing_format) == (128, "tile_packed_to_4d")


def test_weights_in_a_coarser_format_are_found(technique: ModuleType) -> None:
    answer = answer_of(technique, "fp8_weight_only")
    tolerance = technique.TECHNIQUE["check"]["tolerance"]
    assert over_formats(technique, answer, "int8_weight_only") > tolerance


@pytest.mark.parametrize("arm", ARMS[1:])
def test_one_layer_with_the_scales_of_other_rows_is_found(technique: ModuleType, arm: str) -> None:
    answer = answer_of(technique, arm)
    scale = answer.model.layers[1].mlp.up_proj.weight.scale
    scale.copy_(1.3 * scale.flip(0))
    answer.step()
    assert over_formats(technique, answer, arm) > technique.TECHNIQUE["check"]["tolerance"]


def test_logits_that_no_step_has_made_are_no_number(technique: ModuleType) -> None:
    answer = technique.Answer(SIZE, 1, CPU)
    assert math.isnan(answer.distance())


def test_a_layer_that_the_library_leaves_as_it_is_fails(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique.quantization, "quantize_", lambda model, config: None)
    with pytest.raises(
        technique.Failed, match=r"does not quantise layers\.0\.self_attn\.q_proj, \(256, 256\)"
    ):
        answer_of(technique, "int8_dynamic")


def test_the_baseline_has_the_compiler_set_as_the_library_sets_it(
    technique: ModuleType, settings: list[str]
) -> None:
    answer_of(technique, "bf16")
    assert settings == ["technique"]


def arm_of(technique: ModuleType, arm: str, phase: str) -> Any:
    made = technique.make(arm, {"model": "llama_toy", "phase": phase}, 7, None)
    made.step()
    return made


def test_decoding_reads_weights_of_which_the_embedding_stays_as_it_is(
    technique: ModuleType,
) -> None:
    size = technique.LLAMA_SIZES["llama_toy"]
    embedding = size.vocabulary * size.width
    plain, quantised = (arm_of(technique, arm, "decode") for arm in ("bf16", "int8_weight_only"))
    assert plain.bytes - quantised.bytes == pytest.approx(size.weights - embedding, rel=0.1)
    assert quantised.metrics()["weights_bytes"] == quantised.bytes
    assert (plain.items, plain.flops, plain.roof) == (1, 0, "device_memory")


def test_a_prefill_multiplies_all_tokens_and_tells_its_error(technique: ModuleType) -> None:
    size = technique.LLAMA_SIZES["llama_toy"]
    arm = arm_of(technique, "int8_dynamic", "prefill")
    assert arm.error() == arm.metrics()["logits_distance"] / technique.FORMATS["int8_dynamic"]
    head = size.vocabulary * size.width
    products = 2 * size.tokens * (size.weights - head) + 2 * head
    scores = 2 * 2 * size.tokens * (size.tokens / 2) * size.width * size.layers
    assert (arm.flops, arm.items, arm.roof) == (products + scores, size.tokens, "gemm/int8")


@pytest.mark.parametrize(
    ("arm", "phase", "capability", "reason"),
    [
        ("int8_dynamic", "decode", (9, 0), "by 17 rows or more"),
        ("fp8_dynamic", "decode", None, "products of 8-bit floats need a GPU"),
        ("fp8_weight_only", "decode", (8, 0), "the GPU has no 8-bit floats"),
        ("int4_tinygemm", "decode", None, "packed 4-bit weights need a GPU"),
        ("int4_tinygemm", "prefill", (9, 0), "for few rows, and would take seconds"),
        ("int8_weight_only", "prefill", (9, 0), "for few rows, and would take seconds"),
        ("int4_tinygemm", "decode", (7, 5), "no products of packed 4-bit weights for this GPU"),
    ],
)
def test_an_arm_without_products_is_skipped(
    technique: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    arm: str,
    phase: str,
    capability: tuple[int, int] | None,
    reason: str,
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    device = SimpleNamespace(type="cuda" if capability else "cpu")
    with pytest.raises(technique.Skip, match=reason):
        technique.require_products(arm, phase == "decode", device)


@pytest.mark.usefixtures("idle_graphs")
def test_a_graph_that_does_nothing_is_found(technique: ModuleType) -> None:
    arm = technique.make("bf16", {"model": "llama_toy", "phase": "decode"}, 7, None)
    arm.step()
    assert not arm.error() < technique.TECHNIQUE["check"]["tolerance"]
