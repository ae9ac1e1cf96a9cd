"""job/ladder: a training step as what people turn on is added, one setting at a time."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.jobs import arm_with
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What do I turn on, in which order, and what does each setting bring on top of "
    "those before it?",
    "expectation": """
        Each arm has what the arms before it have, and one setting more. llama_1b, 8192 tokens: 67
        TFLOP in products, and 1.24 G weights. H100: in FP32 without TF32, as torch comes, products
        take 1.2 s at 51 TFLOP/s, and attention of FP32 as much again as a tenth of that: 1.5 s.
        TF32: 0.17 s at 390 TFLOP/s, 0.1 s of attention and 0.1 s of passes over FP32: 0.37 s. BF16:
        67 TFLOP at 640 are 0.1 s, passes half: 0.2 s, in which AdamW tensor by tensor takes 30 ms;
        in one kernel 35 GB, 12 ms: 0.18 s. Compiled, each layer and the loss: norms, SwiGLU,
        rotations and the loss pass once over memory: 0.143 s. Cut cross entropy never writes 8192 x
        128256 logits: 8 GB less, as fast within 5 %. FP8 in the layers' linear products, 0.8 of all
        operations: 0.125 s. In all 12 times torch's defaults. An H200 has 1.4 of the bandwidth: the
        same products, passes shorter: BF16 0.165 s, FP8 0.115 s. GPT-2, 8 x 1024 tokens: the same
        order, and less of each, since passes, not products, take the time: 27 ms in BF16, 18
        compiled; FP8 on a width of 768 loses. ViT-L/16, 128 images, 47 TFLOP in layers half as
        wide as a Llama's and with twice its passes: FP32 1.1 s, TF32 0.4, BF16 0.16, its optimizer
        3 ms of that; compiled 0.11; FP8 has at a width of 1024 as much to cast as to save.
    """,
    "predict": [
        "model:llama_1b @h100: torch_default 1.3-1.7 s, tf32 330-420 ms, bf16 180-220 ms,"
        " fused_adamw 170-190 ms, compiled 136-150 ms, cut_cross_entropy 133-150 ms,"
        " fp8 117-133 ms",
        "model:llama_1b @h200: fused_adamw 155-175 ms, fp8 108-125 ms",
        "model:gpt2 @h100: fused_adamw 24-30 ms, compiled 16-20 ms",
        "model:vit_l16 @h100: torch_default 950-1350 ms, tf32 330-470 ms, fused_adamw 130-190 ms,"
        " compiled 90-130 ms, fp8 85-135 ms",
    ],
    "found": (
        "TF32 takes 1.28 times what was predicted at most: attention stays in FP32, and torch's "
        "kernel for that, of cards before Hopper, takes 236 of a traced step's 486 ms on an H200, "
        "where 100 were predicted; products take 180. Until 2026-11-29 layers had weights as "
        "drawn, by which each makes roundings of those before it larger: llama_1b's gradients are "
        "0.46 off in FP8 and 0.04 in BF16. By calmer ones, as now, they are 0.106 and 0.008 off "
        "(H200)."
    ),
    "gpus": 1,
    "whole_steps": True,
    "arms": [
        "torch_default",
        "tf32",
        "bf16",
        "fused_adamw",
        "compiled",
        "fp8",
        "cut_cross_entropy",
    ],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "gpt2", "vit_l16", "llama_toy", "vit_toy"]},
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm; each "
        "parameter's cosine and norm have bounds of their own",
        "tolerance": 0.02,  # BF16: 0.0081 of llama_1b on an H200; emulated 0.013 of its kin
    },
}
RUNGS: list[str] = TECHNIQUE["arms"]  # type: ignore[assignment]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step with the settings up to the arm's."""
    return arm_with(RUNGS[: RUNGS.index(arm) + 1], str(point["model"]), seed, gpu)
