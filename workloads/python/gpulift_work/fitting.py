"""What makes a training fit a card: what is made again, and what the host keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint

from gpulift_work.resting import Resting
from gpulift_work.training import Training

BUDGET = 0.5  # of what compiled layers keep by themselves


def run_again(modules: Iterable[nn.Module], **options: Any) -> None:
    """Each keeps what it is given, and runs again in the backward pass."""

    def again(run: Any) -> Any:
        # As partial(checkpoint, run) the compiler would take it for torch's own, and leave it.
        def run_twice(*given: Any) -> Any:
            return checkpoint(run, *given, use_reentrant=False, **options)

        return run_twice

    for module in modules:
        module.forward = again(module.forward)


def set_budget() -> None:
    """Ahead of what is compiled: the compiler looks for what is cheapest to make again."""
    functorch_config.activation_memory_budget = BUDGET


def rule_of(training: Training) -> dict[str, Any]:
    """AdamW's, for another with the same."""
    group = training.optimizer.param_groups[0]
    return {key: group[key] for key in ("params", "lr", "betas", "eps", "weight_decay")}


def offload_optimizer(training: Training, of: Iterable[nn.Module]) -> None:
    """AdamW of these modules on the host, fused, by weights as their gradients arrive, but for
    norms."""
    from torchao.optim import CPUOffloadOptimizer

    rule = rule_of(training)
    every = rule.pop("params")
    chosen = [one for module in of for one in module.parameters()]
    vectors = max(one.numel() for one in every if one.dim() == 1)
    optimizer = CPUOffloadOptimizer(chosen, minimal_size=vectors + 1, fused=True, **rule)
    theirs = set(chosen)
    others = [one for one in every if one not in theirs]
    optimizer.d_opt.add_param_group({"params": others})  # the one of norms, on the GPU
    training.optimizer = optimizer


def copies_of(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, torch.Tensor]:
    """The host's by the weights, as torchao's CPUOffloadOptimizer keeps them."""
    # Another in its place would send each gradient twice: its hooks stay with the weights.
    return getattr(optimizer, "param_d2h_map", {})


class WithHost(Resting):
    """A training whose optimizer may be on the host, in part or as a whole."""

    def begin(self) -> None:
        """With the first weights on the host, too, where the optimizer has copies of them."""
        super().begin()
        for weight, copy in copies_of(self.training.optimizer).items():
            copy.copy_(weight.detach())

    def drop_moments(self) -> None:
        """Of all its parts: an optimizer on the host has one for each weight, and no state."""
        optimizer = self.training.optimizer
        if not copies_of(optimizer):
            super().drop_moments()
            return
        for part in (*optimizer.optim_dict.values(), optimizer.d_opt):
            if part is not None:  # of small weights, which stay on the GPU
                part.state.clear()
