"""optimizer/foreach: one AdamW step over all parameters of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from gpulift_work.training import (
    arm_on,
    device_of,
    free_memory,
    leave_a_core_free,
    make_model,
    memory_of,
    require_gpu_for,
)
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": (
        "What does PyTorch's fused AdamW save over foreach, its default on a GPU, and what would a "
        "loop of single-parameter updates cost?"
    ),
    "expectation": """
        Foreach passes 8 times over all tensors and moves 20 values of FP32 a parameter, 80 bytes;
        fused passes once and moves 7, 28 bytes: weight, gradient and both moments are read, all but
        the gradient written: 2.86. llama_1b, 146 tensors and 1.24 G parameters, on an H100 at 2.7
        to 3.0 TB/s: 33 to 37 ms and 11.5 to 13. Foreach also keeps a copy as large as a moment, 4.9
        GB beside 19.8. GPT-2, 148 tensors and 124 M: 3.3 to 3.7 ms and 1.16 to 1.3, behind which
        the host has issued all, in 2 ms by foreach and in 0.6 fused. The loop, a control on a GPU,
        moves what foreach does in 10 calls a tensor: as fast on llama_1b, but of GPT-2 1500 calls
        of 5 to 9 us in Python and dispatch take 8 to 13 ms: 0.3. An H200, at 3.6 to 4.3 TB/s: 23 to
        27 ms of llama_1b and 8 to 9.6. The toy's 20 tensors are the host's calls alone: fused some
        3 times, the loop a fifth.
    """,
    "predict": [
        "model:llama_1b @h100: foreach 31-38 ms, fused 11-13.5 ms",
        "model:llama_1b @h200: foreach 22-28 ms, fused 7.7-9.9 ms",
        "model:llama_1b @nvidia: fused 2.6-3.0, loop 0.95-1.1",
        "model:gpt2 @h100: foreach 3.2-3.9 ms, fused 1.1-1.4 ms, fused 2.5-3.0, loop 0.22-0.5",
    ],
    "arms": ["foreach", "fused", "loop"],
    "controls": ["loop"],
    "l2": "by_size",
    "page_cache": "none",
    # All arms of llama_1b at once: 3 x 19.8 GB, and 4.9 + 2.1 that foreach and the loop keep beside
    "sweep": {"model": ["llama_1b", "gpt2", "llama_toy"]},
    # No quick case: three interpreters that load torch for each case and launch take longer than
    # all else together.
    "check": {
        "meaning": (
            "parameters after 3 steps against the loop in FP64, relative to the largest change"
        ),
        "tolerance": 1e-3,
    },
}

VALUES_MOVED = 7  # the gradient is read; parameter and both moments are read and written
OPTIONS = {
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
    "loop": {"foreach": False, "fused": False},
}
CHECKED_STEPS = 3
PIECE = 1 << 24  # parameters that are checked at once: in FP64 a whole table would fill the card


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Parameters with gradients of their own and one optimizer over them, all in FP32."""
    model = str(point["model"])
    require_gpu_for(model, gpu)
    threads = leave_a_core_free()
    device = device_of(gpu)
    parameters = []
    for weight, gradient in drawn(model, seed, device):
        weight.requires_grad_().grad = gradient
        parameters.append(weight)
    optimizer = adamw(parameters, arm)

    def error() -> float:
        for _ in range(CHECKED_STEPS - 1):
            optimizer.step()
        begun = drawn(model, seed, device)
        found = largest_error(
            relative_error(*pieces)
            for (start, gradient), parameter in zip(begun, parameters, strict=True)
            for pieces in zip(*map(in_pieces, (start, gradient, parameter)), strict=True)
        )
        free_memory(device)
        return found

    count = sum(parameter.numel() for parameter in parameters)
    return arm_on(
        device,
        threads,
        step=optimizer.step,
        error=error,
        metrics=lambda: memory_of(optimizer.step, device),
        bytes=VALUES_MOVED * torch.float32.itemsize * count,
        roof="device_memory" if device.type == "cuda" and model != "llama_toy" else "",
        items=count,
        item="parameter",
    )


def drawn(
    model: str, seed: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A weight and a gradient in the shape of each of the model's parameters: the same whenever
    they are drawn."""
    with torch.device("meta"):
        shapes = [parameter.shape for parameter in make_model(model).parameters()]
    generator = torch.Generator(device).manual_seed(seed)
    for shape in shapes:
        weight, gradient = (
            torch.randn(shape, generator=generator, device=device) for _ in range(2)
        )
        yield weight, gradient


def adamw(parameters: list[torch.Tensor], arm: str) -> torch.optim.Optimizer:
    """The optimizer of an arm, with torch's defaults."""
    try:
        return torch.optim.AdamW(parameters, lr=1e-3, **OPTIONS[arm])
    except RuntimeError as error:  # how torch refuses `fused` where it has no such kernel
        raise Skip(f"torch refuses {arm}: {error}") from error


def in_pieces(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Each value in one of them."""
    pieces: tuple[torch.Tensor, ...] = values.detach().flatten().split(PIECE)
    return pieces


def largest_error(errors: Iterator[float]) -> float:
    """Not a number if one is none."""
    return float(torch.tensor(list(errors)).max())


def relative_error(start: torch.Tensor, gradient: torch.Tensor, parameter: torch.Tensor) -> float:
    """How far the parameter is from where the FP64 loop brings it, over how far that moves it.

    1 for an optimizer that changes nothing.
    """
    exact = start.double().requires_grad_()
    exact.grad = gradient.double()
    optimizer = adamw([exact], "loop")
    for _ in range(CHECKED_STEPS):
        optimizer.step()
    found = exact.detach()
    moved = (found - start).abs().max().item()
    return float((found - parameter).abs().max().item() / moved)
