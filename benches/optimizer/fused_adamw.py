"""The arms of optimizer/fused_adamw in Python: torch's AdamW between two casts.

Steps are calls, as a training loop makes them, and no replays of a graph: torch's default counts
its steps on the host, which no graph records, and with `capturable` it is another sequence of
kernels. So where the host sets the pace, a step's time is the host's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from gpulift_work.kernels import largest_error, model_tensors, require_kernels_of
from gpulift_work.training import arm_on, device_of, free_memory, set_up
from gpulift_worker import Arm

OPTIONS = {
    "foreach": {"foreach": True},
    "torch_fused": {"fused": True},
    "compiled": {"foreach": True},
}
# Of kernels/adamw.hpp
RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step of all tensors of the case's model."""
    device = device_of(gpu)
    require_kernels_of(arm, device)
    threads = set_up(device)
    mixed = Mixed(arm, str(point["model"]), seed, device)
    step = torch.compile(mixed.step, dynamic=False) if arm == "compiled" else mixed.step
    return arm_on(device, threads, step=step, error=mixed.error)


class Mixed:
    """Weights and gradients of BF16, and their optimizer's of FP32."""

    def __init__(self, arm: str, model: str, seed: int, device: torch.device) -> None:
        self._drawn_from = model, seed, device
        begun = list(drawn(model, seed, device))
        self.weights = [torch.full_like(gradient, torch.nan) for _, gradient in begun]
        self.gradients = [gradient for _, gradient in begun]
        self.exact_weights = [weight.requires_grad_() for weight, _ in begun]
        self.exact_gradients = [torch.empty_like(weight) for weight, _ in begun]
        for weight, gradient in zip(self.exact_weights, self.exact_gradients, strict=True):
            weight.grad = gradient
        self.optimizer = torch.optim.AdamW(
            self.exact_weights,
            lr=RATE,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=DECAY,
            **OPTIONS[arm],
        )

    def step(self) -> None:
        """Widens the gradients, steps, and rounds the weights."""
        with torch.no_grad():
            torch._foreach_copy_(self.exact_gradients, self.gradients)
            self.optimizer.step()
            torch._foreach_copy_(self.weights, self.exact_weights)

    def error(self) -> float:
        """Of the first step, against FP64: of weights, weights in BF16 and moments, each relative
        to its usual size, added, so that one that is no number stays none."""
        errors = []
        begun = drawn(*self._drawn_from)
        for rounded, weight, start in zip(self.weights, self.exact_weights, begun, strict=True):
            state = self.optimizer.state[weight]
            mean, square, stepped = after_first_step(*start)
            errors.append(
                largest_error(rounded, stepped, 1) / 1024
                + largest_error(weight, stepped, 1)
                + largest_error(state["exp_avg"], mean, 0.1)
                + largest_error(state["exp_avg_sq"], square, 0.1)
            )
        free_memory(self._drawn_from[-1])
        return float(torch.tensor(errors).max())


def drawn(
    model: str, seed: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of each tensor the weights in FP32 and the gradient in BF16: the same whenever they are
    drawn."""
    generator = torch.Generator(device).manual_seed(seed)
    for count in model_tensors(model):
        weight, gradient = (
            torch.randn(count, generator=generator, device=device) for _ in range(2)
        )
        yield weight, gradient.bfloat16()


def after_first_step(weight: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Both moments and the weight, in FP64."""
    exact = gradient.double()
    mean, square = (1 - BETAS[0]) * exact, (1 - BETAS[1]) * exact**2
    # Moments over what they are of a constant gradient after one step
    update = exact / (exact.abs() + EPSILON)
    return mean, square, weight.double() * (1 - RATE * DECAY) - RATE * update
