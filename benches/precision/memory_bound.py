"""precision/memory_bound: layers whose time is that of their bytes, in 32 and in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as nnf
from gpulift_work.kernels import sets_beyond_cache
from gpulift_work.training import arm_on, device_of, distance, set_up
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What do 16 bits save in layers that memory bounds?",
    "expectation": """
        Forward a layer reads and writes its values once, backward it reads two sets and writes
        one: 5 passes. 67 M values are 1.34 GB in FP32, 0.46 ms at the 2.9 TB/s of an H100, and
        0.67 GB and 0.23 ms in 16 bits, to which launches add 10 us: 1.9. The norm's backward pass
        reads both sets a second time for its means where they do not stay on the chip: 1.8. GELU
        computes some 20 operations a value, in FP32 in both types: hidden behind the bytes. 4 M
        values, 84 MB, are 29 us and in 16 bits 15, and their 33 MB stay in the L2 of 50; but two
        launches with autograd's dispatch take the host 40 us: 1.0. FP16 is as BF16. On a host the
        results of 67 M values are new pages, whose faults cost as much a byte as all else: half
        the bytes, half the faults, 1.8; converting two ways takes GELU some of it, 1.3. The norm
        has no weights. Under autocast norm and softmax stay in FP32 (ATen/autocast_mode.h): this is
        of models that are in 16 bits themselves.
    """,
    "predict": [
        "values:67108864 @h100: fp32 414-506 us",
        "layer:layer_norm/values:67108864 @h100: fp16 1.62-1.98, bf16 1.62-1.98",
        "layer:softmax/values:67108864 @h100: fp16 1.71-2.09, bf16 1.71-2.09",
        "layer:gelu/values:67108864 @h100: fp16 1.71-2.09, bf16 1.71-2.09",
        "values:4194304 @h100: fp16 0.9-1.1, bf16 0.9-1.1",
        "layer:layer_norm/values:67108864 @cpu: fp16 1.62-1.98, bf16 1.62-1.98",
        "layer:softmax/values:67108864 @cpu: fp16 1.62-1.98, bf16 1.62-1.98",
        "layer:gelu/values:67108864 @cpu: fp16 1.17-1.43, bf16 1.17-1.43",
    ],
    "found": (
        "Softmax takes an H100 0.72 ms in FP32, as 7.8 passes at 2.9 TB/s would, not 5; GELU takes "
        "0.45 and the norm 0.54. On an H200 it has 1.6 times GELU's time as well. Which of its two "
        "kernels moves more is not known. There 16 bits are worth 1.5 to 1.6, not 1.7 to 2.0: GELU "
        "has 4.3 TB/s in FP32 and 3.3 in 16 bits, so that bytes alone no longer bound it; what "
        "does was not looked for."
    ),
    "claims": ["half-precision-memory-bound-faster"],
    "arms": ["fp32", "fp16", "bf16"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"layer": ["layer_norm", "softmax", "gelu"], "values": [4194304, 67108864]},
    "check": {
        "meaning": "gradient of the input against FP64, relative",
        "tolerance": 1e-5,
    },
}
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
TOLERANCES = {"fp16": 5e-4, "bf16": 4e-3}  # results are rounded once or twice
WIDTH = 1024
PASSES = 5
LAYERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda given: nnf.layer_norm(given, given.shape[-1:]),
    "softmax": lambda given: torch.softmax(given, dim=-1),
    "gelu": nnf.gelu,
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A layer forward and backward on values of the arm's type."""
    device = device_of(gpu)
    threads = set_up(device)
    layer, values = LAYERS[str(point["layer"])], int(point["values"])
    given, gradient = (
        torch.randn(values // WIDTH, WIDTH, device=device).to(TYPES[arm]) for _ in range(2)
    )
    given.requires_grad_()

    def step() -> None:
        given.grad = None
        layer(given).backward(gradient)

    def error() -> float:
        exact = given.detach().double().requires_grad_()
        layer(exact).backward(gradient.double())
        assert given.grad is not None
        assert exact.grad is not None
        return distance(given.grad.double(), exact.grad)

    moved = PASSES * values * given.element_size()
    stays_cached = sets_beyond_cache(device, moved) > 1  # then a share of the roof says nothing
    return arm_on(
        device,
        threads,
        step=step,
        error=error,
        tolerance=TOLERANCES.get(arm),
        bytes=moved,
        roof="" if stays_cached else "host_memory" if gpu is None else "device_memory",
    )
