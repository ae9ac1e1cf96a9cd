"""memory/optimizer_offload: AdamW's moments and its step on the GPU or on the host."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.training import (
    Training,
    arm_on,
    device_of,
    free_memory,
    make_optimizer,
    memory_of_step,
    parameters_of,
    set_up,
    tokens_of_step,
    update_error,
)
from gpulift_worker import Arm
from torch import nn

TECHNIQUE = {
    "question": "What memory does an optimizer on the host free, and what does each step pay for "
    "it?",
    "expectation": """
        AdamW's moments are 8 bytes a parameter: 1.0 GB of a peak of 8.5 GB for GPT-2 (124 M, 8 x
        1024 tokens), 6.2 GB of some 21 GB for GPT-2 large (774 M, 4 x 1024): 1.13 and 1.4 times
        less memory. A step sends 4 bytes a parameter down and 4 up at 50 GB/s: 2 x 10 ms, large 2
        x 62 ms. The host's AdamW moves 28 bytes a parameter at 100 GB/s with 15 threads: 35 ms,
        large 217 ms. On the GPU steps take 39 and 75 ms: one after the other 39 + 55 = 94 ms, 0.4
        of the speed, and 75 + 341 ms, 0.18. Overlapped, gradients go down behind the backward
        pass and weights go up behind the host's next update, so that the host's 35 ms and some
        148 calls at 30 us are left: 0.5; large 75 + 220 ms, 0.25.
    """,
    "predict": [
        {"arm": "on_gpu", "case": {"model": "gpt2"}, "step_time_s": [0.0351, 0.0429]},
        {"arm": "offloaded", "case": {"model": "gpt2"}, "speedup": [0.36, 0.44]},
        {"arm": "overlapped", "case": {"model": "gpt2"}, "speedup": [0.45, 0.55]},
        {"arm": "on_gpu", "case": {"model": "gpt2_large"}, "step_time_s": [0.0675, 0.0825]},
        {"arm": "offloaded", "case": {"model": "gpt2_large"}, "speedup": [0.162, 0.198]},
        {"arm": "overlapped", "case": {"model": "gpt2_large"}, "speedup": [0.225, 0.275]},
    ],
    "claims": [],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["on_gpu", "offloaded", "overlapped"],
    "l2": "cold",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt2_large"]},
    "check": {
        "meaning": "weights after 3 steps against AdamW on the GPU with the same gradients, "
        "relative to the way they went",
        "tolerance": 1e-3,
    },
}

CHECKED_STEPS = 3


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step whose optimizer is where the arm says."""
    device = device_of(gpu)
    return arm_of(arm, str(point["model"]), seed, device, set_up(device))


def arm_of(arm: str, name: str, seed: int, device: torch.device, threads: int) -> Arm:
    """The same on any device."""
    training = Training(name, device, seed)
    start = parameters_of(training)
    if arm != "on_gpu":
        kinds = {"offloaded": HostOptimizer, "overlapped": OverlappedHostOptimizer}
        parameters = list(training.model.parameters())
        training.optimizer = kinds[arm](name, parameters, device)

    def error() -> float:
        found = update_error(training, start, CHECKED_STEPS)
        start.clear()
        free_memory(device)
        return found

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        rest=lambda: free_memory(device),  # all arms are in memory at the same time
        metrics=lambda: memory_of_step(training),
        notes={"host_threads": str(threads)},
        items=tokens_of_step(name),
        item="token",
    )


class HostOptimizer(torch.optim.Optimizer):
    """AdamW on copies of the weights in pinned host memory: gradients go down, weights come up."""

    def __init__(self, name: str, parameters: list[nn.Parameter], device: torch.device) -> None:
        super().__init__(parameters, {})
        self.device = device
        self.parameters = parameters
        self.copies = [self._host_copy(one) for one in parameters]
        self.optimizers = [make_optimizer(name, group) for group in self._groups()]

    def _host_copy(self, parameter: nn.Parameter) -> nn.Parameter:
        pinned = self.device.type == "cuda"
        copy = nn.Parameter(torch.empty(parameter.shape, pin_memory=pinned))
        copy.data.copy_(parameter.data)
        copy.grad = torch.empty(parameter.shape, pin_memory=pinned)
        return copy

    def _groups(self) -> list[list[nn.Parameter]]:
        """Of copies: each group has an optimizer."""
        return [self.copies]

    def bring_up(self, place: int) -> None:
        """A weight, as the host has it."""
        self.parameters[place].data.copy_(self.copies[place].data, non_blocking=True)

    def step(self, closure: None = None) -> None:
        """One after the other: all gradients, the update, all weights."""
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            send_down(parameter, copy)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        self.optimizers[0].step()
        for place in range(len(self.copies)):
            self.bring_up(place)


class OverlappedHostOptimizer(HostOptimizer):
    """Each gradient goes down as soon as the backward pass has made it, and each weight comes up
    behind the host's update of the next."""

    def __init__(self, name: str, parameters: list[nn.Parameter], device: torch.device) -> None:
        super().__init__(name, parameters, device)
        on_gpu = device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if on_gpu else None
        self.sent: list[tuple[int, torch.cuda.Event | None]] = []  # in the order of their gradients
        for place, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(
                lambda one, place=place: self._send(place, one)
            )

    def _groups(self) -> list[list[nn.Parameter]]:
        return [[one] for one in self.copies]

    def _send(self, place: int, parameter: torch.Tensor) -> None:
        """Down, once what makes the gradient on the GPU has run."""
        if self.stream is None:
            send_down(parameter, self.copies[place])
            self.sent.append((place, None))
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            send_down(parameter, self.copies[place])
            assert parameter.grad is not None
            parameter.grad.record_stream(self.stream)
            event = torch.cuda.Event()
            event.record(self.stream)
        self.sent.append((place, event))

    def step(self, closure: None = None) -> None:
        """Each as its gradient has arrived. The next step waits for the weights."""
        for place, event in self.sent:
            if event is not None:
                event.synchronize()
            self.optimizers[place].step()
            # No kernel reads the old weight any more: its gradient came after all that did.
            with torch.cuda.stream(self.stream):
                self.bring_up(place)
        self.sent.clear()
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


def send_down(parameter: torch.Tensor, copy: nn.Parameter) -> None:
    """Its gradient, to the host's copy."""
    assert parameter.grad is not None
    assert copy.grad is not None
    copy.grad.copy_(parameter.grad, non_blocking=True)
