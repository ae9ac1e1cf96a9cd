"""precision/quantisation: the linear layers of a model that answers, in 8 and 4 bits by torchao."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_work.llama import LLAMA_SIZES, Llama, LlamaSize
from gpulift_work.training import (
    arm_on,
    compile_layers,
    device_of,
    distance,
    free_memory,
    keep_the_compiler_quiet,
    memory_of,
    recorded,
    require_compiler,
    require_fp8,
    set_up,
)
from gpulift_worker import Arm, Failed, Skip
from torch import nn
from torchao import quantization
from torchao.quantization.utils import recommended_inductor_config_setter
from torchao.utils import TorchAOBaseTensor, get_model_size_in_bytes

TECHNIQUE = {
    "question": "What do weights and products in 8 and 4 bits bring to inference?",
    "expectation": """
        llama_1b has 0.973 G weights in linear layers and 0.263 G in the embedding, which is the
        output layer, too, is no linear layer to torchao, and stays in BF16. Decoding one token
        reads all: 2.47 GB in BF16, 1.50 in 8 bits, 1.04 in 4 with a scale and a zero for each 128.
        At 3.0 TB/s of an H100 that is 0.82, 0.50 and 0.35 ms, and some 190 kernels in one graph,
        1.5 us each to start and end, add 0.3 to all: 1.1 ms, and 1.4 and 1.65 times as fast. Weight
        only: the compiler multiplies by one vector in a kernel of its own, which makes BF16 of what
        it reads; of E4M3 that takes more instructions. Dynamic: products go to kernels with tiles
        of 16 rows or more, which for 2048 outputs keep 16 to 32 of 132 multiprocessors busy: 0.5 to
        1.2. Left out is the cache of keys and values: of 4096 tokens 0.13 GB, 5 % of BF16's bytes.
        Prefill, 1024 tokens, logits of the last: 2.0 TFLOP, 3.1 ms in BF16; attention 0.2, passes
        0.5, kernels 0.3: 4.1 ms. Weights alone in fewer bits are for decoding. What they cost a
        prompt E4M3 shows: weights are made BF16 ahead of each product, 1 ms: 0.8. Of integers the
        compiler takes a kernel for few rows, which has taken 8.6 s for 4096 tokens, and torch's own
        for 4 bits, of Ampere, reads weights anew for each 16 rows: both are left out there.
        Dynamic: FP8 at 1150 TFLOP/s, 1.7 ms, and 0.3 ms for quantising inputs: 1.35; INT8, by the
        faster of cuBLAS and Triton, at some 800: 1.1. Peak memory of decoding shrinks as its bytes
        do: 1.65 and 2.4 times.
        Logits: one product is 0.8 % off with weights in INT8, 2.6 in E4M3, 3.7 where inputs are
        rounded, too, and 10 in INT4; logits are about as much, beside the 0.9 of BF16. Not
        measured: what a model answers worse for it, which takes one that has learnt.
    """,
    "predict": [
        "phase:decode @h100: bf16 950-1400 us, int8_weight_only 1.2-1.6, fp8_weight_only 1.1-1.6,"
        " fp8_dynamic 0.6-1.15, int4_tinygemm 1.25-1.95",
        "phase:prefill @h100: bf16 3.5-4.9 ms, int8_dynamic 0.8-1.35, fp8_weight_only 0.7-0.92,"
        " fp8_dynamic 1.15-1.55",
    ],
    "claims": [
        "quantisation-saves-memory",
        "quantisation-faster",
        "quantisation-prefill-faster",
    ],
    "gpus": 1,
    "arms": [
        "bf16",
        "int8_weight_only",
        "int8_dynamic",
        "fp8_weight_only",
        "fp8_dynamic",
        "int4_tinygemm",
    ],
    "l2": "cold",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b"], "phase": ["decode", "prefill"]},
    "check": {
        "meaning": "distance of logits from FP32 of the weights as they were, over what the arm's"
        " formats make",
        "tolerance": 1.5,  # weights in E4M3 in place of INT8 make 2.3
    },
}
# What the logits of one token are off on a processor, whose products have no other roundings.
FORMATS = {
    "bf16": 0.009,
    "int8_weight_only": 0.0115,
    "int8_dynamic": 0.0155,
    "fp8_weight_only": 0.027,
    "fp8_dynamic": 0.037,
    "int4_tinygemm": 0.105,
}
PREFILL = 1024  # tokens
ROOFS = {"int8_dynamic": "gemm/int8", "fp8_dynamic": "gemm/fp8"}  # of the others, gemm/bf16
INT4_CAPABILITY = (8, 0)
FOR_FEW_ROWS = ("int8_weight_only", "int4_tinygemm")  # kernels of torch 2.11


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A forward pass with the arm's linear layers, compiled, in one graph."""
    name, decode = str(point["model"]), point["phase"] == "decode"
    device = device_of(gpu)
    require_products(arm, decode, device)
    require_compiler(device)
    keep_the_compiler_quiet()
    threads = set_up(device)
    size = LLAMA_SIZES[name]
    tokens = 1 if decode else min(PREFILL, size.tokens)
    answer = Answer(size, tokens, device)
    quantise(answer.model, arm)
    free_memory(device)
    compile_layers(answer.model)
    step = recorded(answer.step, device)
    weight_bytes = float(get_model_size_in_bytes(answer.model))

    def metrics() -> dict[str, float]:
        told = {"weights_bytes": weight_bytes, "logits_distance": answer.distance()}
        return {**memory_of(step, device), **told}

    return arm_on(
        device,
        threads,
        step=step,
        error=lambda: answer.distance() / FORMATS[arm],
        metrics=metrics,
        bytes=weight_bytes if decode else 0.0,
        flops=0.0 if decode else flops_of(size, tokens),
        roof="device_memory" if decode else ROOFS.get(arm, "gemm/bf16"),
        items=tokens,
        item="token",
    )


def require_products(arm: str, decode: bool, device: torch.device) -> None:
    """Throws Skip where the device has none of the arm's."""
    if arm == "int8_dynamic" and decode:
        raise Skip("torch multiplies integers of 8 bits by 17 rows or more", "take prefill")
    if arm in FOR_FEW_ROWS and not decode:
        raise Skip(
            "its kernel is for few rows, and would take seconds for a prompt",
            "take decode, which reads these weights once for each token",
        )
    if arm.startswith("fp8"):
        require_fp8(device)
    if arm == "int4_tinygemm":
        if device.type == "cpu":
            raise Skip("torch's products of packed 4-bit weights need a GPU")
        if torch.cuda.get_device_capability(device) < INT4_CAPABILITY:
            raise Skip(
                "torch has no products of packed 4-bit weights for this GPU",
                "use one of compute capability 8.0 or later",
            )


class Answer:
    """The logits of a row's last token, and what they are in FP32."""

    def __init__(self, size: LlamaSize, tokens: int, device: torch.device) -> None:
        with device:
            self.model = Llama(size)
            self.tokens = torch.randint(size.vocabulary, (1, tokens))
        draw_weights(self.model)
        self.model.to(torch.bfloat16).requires_grad_(False)
        self.expected = logits_of(copy.deepcopy(self.model).float(), self.tokens)
        self.logits = torch.full_like(self.expected, torch.nan)

    def step(self) -> list[torch.Tensor]:
        """Makes them anew."""
        self.logits = logits_of(self.model, self.tokens)
        return [self.logits]

    def distance(self) -> float:
        """As the last step left them, from those in FP32 of the weights as they were."""
        return distance(self.logits, self.expected)


def logits_of(model: Llama, tokens: torch.Tensor) -> torch.Tensor:
    """Of each row's last token."""
    with torch.no_grad():
        return nnf.linear(model.hidden(tokens)[:, -1], model.output_weight)


def draw_weights(model: Llama) -> None:
    """So that each layer adds a part to what it is given, as in a model that has learnt. By a
    Llama's first weights layers outweigh that, and roundings grow from one to the next: 16 of them
    are 2 % off in BF16 and 70 in INT4."""
    nn.init.normal_(model.embed_tokens.weight)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
    with torch.no_grad():
        for layer in model.layers:
            for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
                last.weight /= (2 * len(model.layers)) ** 0.5


def quantise(model: Llama, arm: str) -> None:
    """Its linear layers, as the arm says. The compiler is set as torchao sets it for them, for the
    baseline, too."""
    recommended_inductor_config_setter()
    if arm == "bf16":
        return
    quantization.quantize_(model, config_of(arm))
    for name, module in model.named_modules():  # one whose sizes do not fit is left as it is
        if isinstance(module, nn.Linear) and not isinstance(module.weight, TorchAOBaseTensor):
            raise Failed(f"torchao does not quantise {name}, {tuple(module.weight.shape)}")


def config_of(arm: str) -> Any:
    """That of torchao's README, by rows; of 4 bits in groups, packed for torch's own kernel."""
    if arm == "int4_tinygemm":
        return quantization.Int4WeightOnlyConfig(
            group_size=128,
            int4_packing_format="tile_packed_to_4d",
            int4_choose_qparams_algorithm="hqq",
        )
    by_rows = quantization.PerRow()
    return {
        "int8_weight_only": quantization.Int8WeightOnlyConfig,
        "int8_dynamic": quantization.Int8DynamicActivationInt8WeightConfig,
        "fp8_weight_only": quantization.Float8WeightOnlyConfig,
        "fp8_dynamic": quantization.Float8DynamicActivationFloat8WeightConfig,
    }[arm](granularity=by_rows)


def flops_of(size: LlamaSize, tokens: int) -> float:
    """Of a row's products; of attention the half that is not masked, of logits the last token's."""
    output = size.vocabulary * size.width
    attention = 2 * size.layers * size.width * tokens**2
    return float(2 * tokens * (size.weights - output) + 2 * output + attention)
