"""job/step: a training step of today, eager, compiled and in FP8, checked in seconds."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.jobs import arm_with
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "How fast does this card train, and what do the compiler and FP8 bring?",
    "expectation": """
        Each arm has what the one before it has, and more. llama_1b, 8192 tokens: 67 TFLOP in
        products and attention, 1.24 G weights. H100: products 0.105 s at 640 TFLOP/s, AdamW in one
        kernel 35 GB, 12 ms, and 200 GB of passes between products, in weights' casts and over
        logits, 68 ms at 3.0 TB/s: 0.185 s, 57 % of the products' roof. Compiled, layers one by one
        and the loss, passes are some 80 GB: 0.146 s, 1.27, 72 %. FP8 in the layers' linear
        products, 53 of the 67 TFLOP, at twice the rate saves 41 ms, and scales and casts take 25 of
        them back: 0.13 s, 1.42 of eager, 1.12 of compiled. An H200 has 1.4 of the bandwidth: 0.165
        s, 0.137, 0.115. GPT-2, 8 x 1024 tokens: 27 ms, half of it passes, 18 compiled; FP8 on a
        width of 768 has more to scale than to save: 19. An eighth of Llama 8B, 4096 tokens, 0.94 G
        weights, 24.4 TFLOP, 21.4 of them in layers: products 38 ms, AdamW 9, casts 4, passes 11: 62
        ms, compiled 57; products as wide gain a third by FP8, casts paid (precision/fp8_linear): 9
        ms less, 1.3 of eager. ViT-L/16, 128 images: 150 ms, compiled 122;
        FP8 at a width of 1024 has as much to scale as to save, 130. Half a minute an arm where the
        compiler finds nothing that it made before, which is not measured.
    """,
    "predict": [
        "model:llama_1b @h100: bf16 175-195 ms, compiled 1.2-1.33, fp8 1.33-1.5",
        "model:llama_1b @h200: bf16 155-175 ms, fp8 108-125 ms",
        "model:gpt2 @h100: bf16 24-30 ms, compiled 1.3-1.65, fp8 1.2-1.6",
        "model:llama_8b_slice @h100: bf16 55-70 ms, compiled 1.04-1.18, fp8 1.18-1.42",
        "model:vit_l16 @h100: bf16 135-165 ms, compiled 1.15-1.3, fp8 1.03-1.2",
    ],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["bf16", "compiled", "fp8"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "llama_8b_slice", "gpt2", "vit_l16", "llama_toy"]},
    "quick": [{"model": "llama_1b"}],
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm; each "
        "parameter's cosine and norm have bounds of their own",
        "tolerance": 0.02,  # BF16: 0.0081 of llama_1b on an H200; emulated 0.013 of its kin
    },
}
# Two updates take 0.4 of the loss of a Llama as wide; an exact step takes half a second.
CHECKED_STEPS = 3
BF16 = ("tf32", "bf16", "fused_adamw")
SETTINGS = {"bf16": BF16, "compiled": (*BF16, "compiled"), "fp8": (*BF16, "compiled", "fp8")}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step with the arm's settings."""
    return arm_with(SETTINGS[arm], str(point["model"]), seed, gpu, CHECKED_STEPS)
