"""precision/fp8_step: the linear layers of a training step in BF16, or in FP8 by torchao."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.jobs import arm_with
from gpulift_work.training import device_of, require_fp8
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "Which recipe of FP8 linear layers shortens a training step, and what does it do "
    "to gradients and loss?",
    "expectation": """
        llama_1b, 8192 tokens, compiled, on an H100: the layers' products are 48 TFLOP, 75 ms of 146
        in BF16; the output layer stays in BF16. By tensor FP8 multiplies at 1100 TFLOP/s: 32 ms
        less; inputs, gradients and weights are read for the largest, read again and written in 8
        bits, in two layouts: 16 ms more: 1.1. By rows products are slower, 15 ms less, and each
        layout has scales of its own, one of them by columns, 26 ms more: 0.93. With the weight's
        gradient in BF16, rows alone are scaled: two thirds of the products 10 ms less, 10 ms more:
        1.0. GPT-2, 768 wide, 18 ms: products 2 ms less, casts 4 ms more: 0.9, by rows 0.85. Eager,
        as nobody would run it, a cast is 8 passes and launches: 0.6 of llama_1b, and of GPT-2,
        where the host sets the pace, 0.3. Gradients: E4M3 keeps 4 bits and E5M2, which by tensor
        has the gradients, 3: 0.1 to 0.25 off by tensor, less by rows, and least with the weight's
        gradient in BF16.
        Losses of 20 steps within 2 % of FP32. Memory is the same: inputs are kept in BF16. Whether
        a training on data ends at another loss is asked by precision/fp8_loss.
    """,
    "predict": [
        "model:llama_1b/form:compiled @h100: bf16 139-153 ms, tensorwise 1.05-1.15,"
        " rowwise 0.88-0.97, rowwise_with_gw_hp 0.93-1.05",
        "model:gpt2/form:compiled @h100: bf16 16-20 ms, tensorwise 0.82-0.98, rowwise 0.75-0.95,"
        " rowwise_with_gw_hp 0.8-1.0",
        "model:llama_1b/form:eager @h100: bf16 178-198 ms, tensorwise 0.45-0.75,"
        " rowwise 0.4-0.75, rowwise_with_gw_hp 0.5-0.85",
        "model:gpt2/form:eager @h100: bf16 24-30 ms, tensorwise 0.2-0.45, rowwise 0.2-0.45,"
        " rowwise_with_gw_hp 0.25-0.55",
    ],
    "found": (
        "Until 2026-11-29 layers had weights as drawn, by which each makes roundings of those "
        "before it larger: llama_1b's gradients are 0.45 to 0.46 off by any recipe, losses of 20 "
        "steps 0.024 to 0.029, BF16's 0.001. By calmer ones, as now, gradients are 0.107 off by "
        "tensor, 0.091 by rows and 0.008 in BF16, losses of 5 steps 0.0009 by tensor (H200). "
        "Since then small layers stay in BF16, of llama_1b those of keys and values, 2048 x 512: "
        "8192 tokens take 134 us by tensor there and 92 in BF16; of 2048 x 2048, 281 and 291."
    ),
    "gpus": 1,
    "whole_steps": True,
    "arms": ["bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp"],
    "l2": "cold",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "llama_1b"], "form": ["compiled", "eager"]},
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm; each "
        "parameter's cosine and norm have bounds of their own",
        "tolerance": 0.02,  # BF16: 0.0081 of llama_1b on an H200; emulated 0.013 of its kin
    },
}
BF16 = ("bf16", "fused_adamw")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step whose layers have the arm's products; those of the output layer stay in BF16,
    as is usual."""
    require_fp8(device_of(gpu))  # of the baseline, too, which would be alone
    settings = [*BF16, *(["compiled"] if point["form"] == "compiled" else [])]
    if arm == "bf16":
        return arm_with(settings, str(point["model"]), seed, gpu)
    return arm_with([*settings, "fp8"], str(point["model"]), seed, gpu, recipe=arm)
