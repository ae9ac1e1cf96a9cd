"""The arm torch_grouped of gemm/grouped: the products of all experts in one call of torch's, as
models of transformers 5 make it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as nnf
from gpulift_work.training import arm_on, device_of, memory_of, set_up
from gpulift_worker import Arm

CHECKED = 64  # features of each expert
# Compute capabilities on which the call is CUTLASS's grouped kernel; on others it waits for the
# ends and multiplies one expert after another (aten/src/ATen/native/cuda/GroupedBlas.cpp).
GROUPED_KERNELS = (9, 10)


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The products of the point's experts."""
    device = device_of(gpu)
    threads = set_up(device)
    experts, features, inputs = map(int, str(point["experts"]).split("x"))
    dealt = deal_tokens(experts, int(point["tokens"]), evenly=point["dealt"] == "evenly")
    products = Products(dealt, features, inputs, device)
    return arm_on(
        device,
        threads,
        step=products.step,
        error=products.error,
        metrics=lambda: memory_of(products.step, device),
        notes={f"algorithm/{arm}": way_on(device)},
    )


def way_on(device: torch.device) -> str:
    """What the call runs on this device."""
    grouped = device.type == "cuda" and (
        torch.cuda.get_device_capability(device)[0] in GROUPED_KERNELS
    )
    return "CUTLASS's grouped kernel, as torch sets it" if grouped else "torch's loop over experts"


def deal_tokens(experts: int, tokens: int, *, evenly: bool) -> list[int]:
    """Of each expert, as deal_tokens() of workloads/expert_matmul.hpp has them for other arms."""
    full = experts // 8
    many = tokens // experts if evenly else tokens // 2 // full
    few = many if evenly else (tokens - tokens // 2) // (experts - full)
    return [few if expert % 8 else many for expert in range(experts)]


class Products:
    """Tokens in the order of their experts, and the weights of each, in BF16."""

    def __init__(self, dealt: list[int], features: int, inputs: int, device: torch.device) -> None:
        self.ends = torch.tensor(list(accumulate(dealt)), dtype=torch.int32, device=device)
        self.weights = torch.empty(
            len(dealt), features, inputs, dtype=torch.bfloat16, device=device
        )
        self.checked = torch.randperm(features)[:CHECKED].to(device)
        exact = []
        for weights in self.weights:
            drawn = torch.randn(features, inputs, device=device)
            weights.copy_(drawn)
            exact.append(drawn[self.checked])
        drawn = torch.randn(sum(dealt), inputs, device=device)
        self.tokens = drawn.bfloat16()
        self.output = self.tokens.new_full((len(drawn), features), torch.nan)
        self.exact = (drawn, exact)  # as they were before they were rounded

    def step(self) -> None:
        """Each expert's product."""
        self.output = nnf.grouped_mm(self.tokens, self.weights.transpose(1, 2), offs=self.ends)

    def error(self) -> float:
        """The relative Frobenius error of some features of all experts against FP64, as that of the
        other arms; gives up what is exact."""
        (tokens, weights), self.exact = self.exact, (torch.empty(0), [])
        differences, squares = [], []
        for own, (first, end) in zip(weights, pairwise([0, *self.ends.tolist()]), strict=True):
            expected = tokens[first:end].double() @ own.double().T
            found = self.output[first:end, self.checked].double()
            differences.append((found - expected).square().sum())
            squares.append(expected.square().sum())
        return float((torch.stack(differences).sum() / torch.stack(squares).sum()).sqrt())
