"""Llamas whose state lies in parts on several ranks, for Python arms: trained as those do who train
large ones, checked against one process, and away from the GPU between their windows."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from gpulift_worker import Arm, Failed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from gpulift_work.distributed import Group, Replica, arm_of
from gpulift_work.first_steps import allow_tf32
from gpulift_work.llama import INITIAL_DEVIATION
from gpulift_work.losses import LossOfHidden
from gpulift_work.losses import compiled as compiled_loss
from gpulift_work.training import (
    free_memory,
    keep_the_compiler_quiet,
    make_optimizer,
    memory_of_step,
    require_compiler,
)

LARGEST_NORM = 1.0  # of all gradients together
BF16_TOLERANCE, FP32_TOLERANCE = 0.15, 1e-4  # of gradients
TENSOR_TOLERANCE = 0.5  # of each by itself: in BF16 2.5 times the error of all; without a rank 0.7
TOLD = 6  # of those that are off
UPDATE_TOLERANCE = 0.01  # FP32 rounds norms' weights, which are 1, by 6e-4 of what they change


class Sharded(Replica):
    """A replica of a Llama, or what a rank keeps of one. Gradients are clipped, layers compiled
    where there is a GPU."""

    def __init__(self, name: str, group: Group, seed: int, *, drives_all: bool = False) -> None:
        super().__init__(name, group, seed, drives_all=drives_all)
        self.all_ranks = group
        self.autocasts = self.bf16
        self.can_be_silent = False  # there are no steps without an exchange
        self.clip: Callable[[], object] = lambda: clip_grad_norm_(
            self.model.parameters(), LARGEST_NORM
        )
        # In it, parameters and their gradients are whole() tensors.
        self.gathering: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._is_checked = False
        self._dropped: list[tuple[torch.UntypedStorage, int]] = []

    def compile_layers(self) -> None:
        """Each by itself, where there is a GPU; ahead of what hooks on them."""
        if self.device.type == "cuda":
            require_compiler(self.device)
            keep_the_compiler_quiet()
            torch._dynamo.config.optimize_ddp = False  # which would cut layers to DDP's buckets
            for layer in self.model.layers:
                layer.compile(fullgraph=True)

    def compile_all(self) -> None:
        """Layers, and output layer and loss as one."""
        self.compile_layers()
        if self.device.type == "cuda":
            self.forward = self.loss_of = LossOfHidden(self.model, compiled_loss())

    def step(self) -> None:
        """As a training loop does."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(self.input, self.target, bf16=self.autocasts)
        self.clip()
        self.optimizer.step()

    def shard(self, mesh: DeviceMesh, **options: Any) -> None:
        """By FSDP2, each layer by itself and what is outside of them: state and sums of gradients
        are in FP32, products in BF16 where the model's are. `options` of fully_shard()."""
        if self.bf16:
            options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for part in (*self.model.layers, self.forward):
            fully_shard(part, mesh=mesh, **options)
        self.autocasts = False
        self.optimizer = make_optimizer(self.name, list(self.model.parameters()))

    def state(self) -> list[torch.Tensor]:
        """What this rank has of weights and moments."""
        sharded: Any = self.optimizer
        own: torch.optim.Optimizer = getattr(sharded, "optim", sharded)  # ZeroRedundancyOptimizer's
        moments = [moment for of_weight in own.state.values() for moment in of_weight.values()]
        return [part_of(tensor) for tensor in (*self.model.parameters(), *moments)]

    def rest(self) -> None:
        """Drops state and gradients, once they are checked: those of a case's arms do not fit a GPU
        together. Tensors stay, so that whoever holds them need not know."""
        if self._dropped or not self._is_checked:
            return
        self.synchronize()
        self.loss = None
        gradients = [part_of(gradient) for gradient in self.gradients()]
        storages = [tensor.untyped_storage() for tensor in (*self.state(), *gradients)]
        own = [storage for storage in storages if storage.device.type == self.device.type]
        each = {storage.data_ptr(): storage for storage in own}  # which tensors of a bucket share
        self._dropped = [(storage, storage.nbytes()) for storage in each.values()]
        for storage, _ in self._dropped:
            storage.resize_(0)
        free_memory(self.device)

    def wake(self) -> None:
        """Where it rests: begins the training anew, and takes the steps that have memory reserved,
        the second of which the host runs ahead of."""
        if not self._dropped:
            return
        for storage, size_bytes in self._dropped:
            storage.resize_(size_bytes)
            storage.fill_(0)
        self._dropped = []
        torch.manual_seed(self.seed)
        for name, parameter in self.model.named_parameters():
            part = part_of(parameter)
            part.fill_(1) if "norm" in name else part.normal_(std=INITIAL_DEVIATION)
        self.step()
        self.step()

    def metrics(self) -> dict[str, float]:
        """The peaks of a step, and the state that this rank keeps, in bytes."""
        self.wake()
        sizes = {"cpu": 0.0, "cuda": 0.0}
        for tensor in self.state():
            sizes[tensor.device.type] += tensor.nbytes
        return {
            **memory_of_step(self),
            "state_bytes": sum(sizes.values()),
            "host_state_bytes": sizes["cpu"],
        }

    def error(self) -> float:
        """Of the first step, after it: how far its clipped gradients are from those of one process
        that has all ranks' rows, in FP32 that may be TF32, relative; each rank looks at a share of
        each. Throws Failed where its update is not AdamW's of these gradients."""
        rows = self.rows * self.all_ranks.ranks
        exact = Replica(self.name, self.all_ranks, self.seed, drives_all=True, micro_batches=rows)
        gradients, apart = [], Distance()
        with self.gathering():
            for first, parameter in zip(
                exact.model.parameters(), self.model.parameters(), strict=True
            ):
                assert parameter.grad is not None
                before = self.share_of(first)
                gradient = self.share_of(self.whole(parameter.grad))
                expected = self.updated(before, gradient)
                apart.add(self.share_of(self.whole(parameter)) - expected, before - expected)
                gradients.append(gradient.to("cpu", copy=True))  # it will be dropped
        if not apart.relative() <= UPDATE_TOLERANCE:  # not a number is off, too
            raise Failed(f"the first update is {apart.relative():.2g} off that of its gradients")
        self._is_checked = True
        self.rest()  # the exact step needs the memory
        exact_step(exact)
        apart, wrong = Distance(), []
        for gradient, (name, parameter) in zip(
            gradients, exact.model.named_parameters(), strict=True
        ):
            expected = self.share_of(parameter.grad)
            of_tensor = apart.add(gradient.to(self.device) - expected, expected)
            if not of_tensor <= TENSOR_TOLERANCE:  # one of many would not show in all
                wrong.append(f"{name} {of_tensor:.2g}")
        if wrong:
            told = f"{len(wrong)} of {len(gradients)}: the gradient of {', '.join(wrong[:TOLD])}"
            raise Failed(f"gradients are off, {told}")
        del exact, parameter, first, expected
        gc.collect()  # layers that hold themselves, and would count in the peak of a step
        free_memory(self.device)
        return apart.relative()

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the device, wherever its parts are."""
        tensor = tensor.detach().to(self.device)
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def share_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """What this rank looks at of a whole tensor."""
        return tensor.detach().flatten().chunk(self.all_ranks.ranks)[self.all_ranks.rank]

    def updated(self, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """By AdamW's first step, whose moments are those of the gradient alone."""
        rule = self.optimizer.defaults
        direction = gradient / (gradient.abs() + rule["eps"])
        return weight * (1 - rule["lr"] * rule["weight_decay"]) - rule["lr"] * direction


class Distance:
    """Of tensors from what is expected of them, all together."""

    def __init__(self) -> None:
        self.apart = self.expected = 0.0

    def add(self, difference: torch.Tensor, expected: torch.Tensor) -> float:
        """One more; its own relative distance."""
        squares = [float(values.square().sum()) for values in (difference, expected)]
        self.apart += squares[0]
        self.expected += squares[1]
        return math.sqrt(squares[0] / squares[1]) if squares[1] else math.inf

    def relative(self) -> float:
        """To the norm of what is expected."""
        return math.sqrt(self.apart / self.expected)


def exact_step(replica: Replica) -> None:
    """Leaves clipped gradients; keeps no layer's activations."""
    for layer in replica.model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    allow_tf32(True)
    replica.backward(replica.input, replica.target, bf16=False)
    allow_tf32(False)
    clip_grad_norm_(replica.model.parameters(), LARGEST_NORM)


def part_of(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of it."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sharded_arm(sharded: Sharded) -> Arm:
    """The arm that trains it."""
    tolerance = BF16_TOLERANCE if sharded.bf16 else FP32_TOLERANCE
    return replace(
        arm_of(sharded, error=sharded.error, tolerance=tolerance),
        rest=sharded.rest,
        wake=sharded.wake,
        metrics=sharded.metrics,
    )
