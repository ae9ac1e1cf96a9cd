"""distributed/pipeline_parallel: a model in two stages, or its batch split over replicas."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as nnf
from gpulift_work.distributed import Group, join
from gpulift_work.parallel import (
    OnDevice,
    all_reduce_metrics,
    arm_of,
    bus_bytes,
    exposed,
    relative_error,
)
from gpulift_work.training import GPT_SIZES, Block, GptSize, free_memory, make_optimizer
from gpulift_worker import Arm, Failed
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

TECHNIQUE = {
    "question": "Is a model that fits on one GPU trained faster in two stages, each on a GPU, or "
    "as two replicas with half of the batch each?",
    "expectation": "The 12 blocks of GPT-2, without embedding and output layer, so that two stages "
    "of 6 are equal; 64 rows of 1024 tokens. A block takes some 0.3 ms a row: data parallel 32 "
    "rows x 12 x 0.3 = 115 ms and AdamW, 85 M parameters; 340 MB of gradients are hidden. Two "
    "stages wait for the first and the last micro-batch, 1 / (m + 1) of the step: 33 % at 2 "
    "micro-batches, 11 % at 8, 3 % at 32: 0.67, 0.89 and 0.97 of the speed of replicas; at 32 a "
    "micro-batch has 2 rows, whose kernels are some 5 % less efficient and whose sends, 6.3 MB, "
    "30 us over NVLink, are waited for: 0.85 to 0.92. Through the host 0.25 ms a send beside "
    "3.6 ms of work: 0.05 less; replicas exchange 340 MB in 13 ms, hidden. 1F1B takes as long as "
    "GPipe. Memory: GPipe keeps all 64 rows of 6 blocks, as much as 32 rows of 12 blocks; 1F1B "
    "those of two micro-batches: the same at 2, a quarter at 8, a sixteenth at 32. On "
    "processors, 2 blocks of width 256 over the loopback: 0.6, 0.8, and less at 32, where "
    "micro-batches of 2 rows take as long as their calls.",
    "predict": [
        {
            "case": {"micro_batches": 2, "link": "nvlink"},
            "speedup": {"gpipe": [0.603, 0.737], "one_f_one_b": [0.603, 0.737]},
        },
        {
            "case": {"micro_batches": 8, "link": "nvlink"},
            "speedup": {"gpipe": [0.801, 0.979], "one_f_one_b": [0.801, 0.979]},
        },
        {
            "case": {"micro_batches": 32, "link": "nvlink"},
            "speedup": {"gpipe": [0.85, 0.92], "one_f_one_b": [0.85, 0.92]},
        },
        {"case": {"micro_batches": 2, "link": "host"}, "speedup": {"gpipe": [0.558, 0.682]}},
        {"case": {"micro_batches": 8, "link": "host"}, "speedup": {"gpipe": [0.756, 0.924]}},
        {"case": {"micro_batches": 32, "link": "host"}, "speedup": {"gpipe": [0.8, 0.87]}},
        {
            "case": {"micro_batches": 2, "link": "gloo"},
            "speedup": {"gpipe": [0.54, 0.66], "one_f_one_b": [0.54, 0.66]},
        },
        {
            "case": {"micro_batches": 8, "link": "gloo"},
            "speedup": {"gpipe": [0.72, 0.88], "one_f_one_b": [0.72, 0.88]},
        },
    ],
    "found": "The host bounds GPipe in 8 micro-batches on H200s, one launch: 3,653 launches take "
    "97 ms, 27 us each, while replicas take 59 ms in place of 115. So 0.60. It waits for 0.12 of "
    "the step, as predicted.",
    "claims": [],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["data_parallel", "gpipe", "one_f_one_b"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"micro_batches": [2, 8, 32], "link": ["nvlink", "host", "gloo"]},
    "check": {
        "meaning": "loss in FP32 against one rank alone, relative; gradients at most 0.00001",
        "tolerance": 1e-6,
    },
}
ROWS = 64
PARTS = 8  # in which one rank alone takes the rows
GRADIENT_TOLERANCE = 1e-5
ON_PROCESSORS = GptSize(layers=2, width=256, heads=4, tokens=32, vocabulary=0)
SCHEDULES = {"gpipe": ScheduleGPipe, "one_f_one_b": Schedule1F1B}


class Stage(nn.Module):
    """Blocks that follow each other."""

    def __init__(self, blocks: list[nn.Module], bf16: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.bf16 = bf16

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        with torch.autocast(state.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            for block in self.blocks:
                state = block(state)
        return state


@dataclass(frozen=True)
class Case:
    """What all arms train: rows of states, to be mapped to others."""

    size: GptSize
    group: Group
    seed: int
    bf16: bool

    def blocks(self) -> list[nn.Module]:
        """Of the whole model: the same on all ranks."""
        torch.manual_seed(self.seed)
        with self.group.device:
            return [Block(self.size) for _ in range(self.size.layers)]

    def rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Given and wanted states of all ranks."""
        torch.manual_seed(self.seed + 1)
        shape = (2, ROWS, self.size.tokens, self.size.width)
        given, wanted = torch.randn(shape, device=self.group.device)
        return given, wanted


class Part(OnDevice):
    """What a rank has of the training: blocks and rows."""

    def __init__(self, case: Case, first: int, last: int) -> None:
        super().__init__(case.group)
        self.case = case
        self.places = range(first, last)
        blocks = case.blocks()[first:last]
        self.stage = Stage(blocks, case.bf16)
        self.optimizer = make_optimizer("gpt2", list(self.stage.parameters()))

    def step(self) -> None:
        """As a training loop does."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward()
        self.optimizer.step()

    def backward(self) -> torch.Tensor:
        """Leaves the gradients of the mean loss of all rows; that loss where this rank has it."""
        raise NotImplementedError

    def loss(self) -> float:
        """Of a backward pass: of all rows, on each rank."""
        raise NotImplementedError

    def costs(self) -> dict[str, float]:
        """Of the exchange."""
        raise NotImplementedError


class Replicated(Part):
    """All blocks and a rank's share of the rows."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, 0, case.size.layers)
        given, wanted = case.rows()
        ranks, rank = self.group.ranks, self.group.rank
        self.given = given.chunk(ranks)[rank].clone()  # or all would be kept
        self.wanted = wanted.chunk(ranks)[rank].clone()
        self.forward = DistributedDataParallel(self.stage, gradient_as_bucket_view=True)

    def backward(self) -> torch.Tensor:
        loss = nnf.mse_loss(self.forward(self.given), self.wanted)
        loss.backward()
        return loss.detach()

    def loss(self) -> float:
        found = self.backward()
        dist.all_reduce(found)
        return float(found) / self.group.ranks

    def _alone(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with self.forward.no_sync():
            self.backward()
        self.optimizer.step()

    def costs(self) -> dict[str, float]:
        numbers = sum(one.numel() for one in self.stage.parameters())
        found = exposed(self, self._alone)
        message = torch.zeros(numbers, device=self.device)
        return {
            **found,
            "exchanged_bytes": bus_bytes(message.nbytes, self.group),
            **all_reduce_metrics(self, message),
        }


class Pipelined(Part):
    """A stage of the blocks, which all rows go through in micro-batches."""

    def __init__(self, case: Case, micro_batches: int, schedule: Callable[..., Any]) -> None:
        group = case.group
        own = case.size.layers // group.ranks
        super().__init__(case, own * group.rank, own * (group.rank + 1))
        self.micro_batches = micro_batches
        self.is_first, self.is_last = group.rank == 0, group.rank == group.ranks - 1
        given, wanted = case.rows()
        self.given = given.clone() if self.is_first else None  # or both would be kept
        self.wanted = wanted.clone() if self.is_last else None
        self.shape = (ROWS // micro_batches, case.size.tokens, case.size.width)
        state = torch.empty(self.shape, device="meta")  # between blocks in FP32, by autocast, too
        staged = PipelineStage(
            self.stage,
            group.rank,
            group.ranks,
            self.device,
            input_args=(state,),
            output_args=(state,),
        )
        self.schedule = schedule(staged, micro_batches, loss_fn=nnf.mse_loss)

    def backward(self) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        given = () if self.given is None else (self.given,)
        if self.wanted is None:
            self.schedule.step(*given, return_outputs=False)
            return torch.zeros((), device=self.device)
        self.schedule.step(*given, target=self.wanted, losses=losses, return_outputs=False)
        return torch.stack(losses).mean().detach()

    def loss(self) -> float:
        found = self.backward()
        dist.broadcast(found, self.group.ranks - 1)
        return float(found)

    def _alone(self) -> None:
        """The work of this stage, which waits for no other."""
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.micro_batches):
            state = torch.ones(self.shape, device=self.device, requires_grad=not self.is_first)
            self.stage(state).mean().backward()
        self.optimizer.step()

    def costs(self) -> dict[str, float]:
        """The share of the step that this stage waits, and what it exchanges: states there and
        their gradients back."""
        found = exposed(self, self._alone)
        whole_s = found["exposed_communication_s"] + found["step_without_exchange_s"]
        state = torch.zeros(self.shape, device=self.device)
        return {
            **found,
            "waiting_share": found["exposed_communication_s"] / whole_s,
            "exchanged_bytes": 2.0 * self.micro_batches * state.nbytes,
            **all_reduce_metrics(self, state),
        }


def error_of(part: Part) -> float:
    """Of the loss in FP32 of all rows. Throws Failed where gradients of this rank are off."""
    timed_in_bf16 = part.stage.bf16
    part.stage.bf16 = False
    alone = whole_model(part)
    part.optimizer.zero_grad(set_to_none=True)
    loss = part.loss()
    part.stage.bf16 = timed_in_bf16
    expected_loss = 0.0
    given, wanted = part.case.rows()
    for some, target in zip(given.chunk(PARTS), wanted.chunk(PARTS), strict=True):
        one = nnf.mse_loss(alone(some), target) / PARTS
        one.backward()
        expected_loss += float(one.detach())
    expected = [alone.blocks[place] for place in part.places]
    gradients = relative_error(gradients_of(list(part.stage.blocks)), gradients_of(expected))
    del alone, expected, one, given, wanted, some, target
    free_memory(part.device)
    if not gradients <= GRADIENT_TOLERANCE:  # not a number is off, too
        raise Failed(f"gradients are off by {gradients:.2g}")
    return abs(loss - expected_loss) / abs(expected_loss)


def gradients_of(blocks: list[nn.Module]) -> list[torch.Tensor]:
    """Of all parameters; nothing of what has none."""
    parameters = (parameter for block in blocks for parameter in block.parameters())
    return [one.grad if one.grad is not None else torch.zeros_like(one) for one in parameters]


def whole_model(part: Part) -> Stage:
    """All blocks in FP32 with the weights that the ranks hold now."""
    model = Stage(part.case.blocks(), bf16=False)
    with torch.no_grad():
        for place, block in enumerate(model.blocks):
            if place in part.places:
                block.load_state_dict(part.stage.blocks[place - part.places.start].state_dict())
            for one in block.parameters():
                dist.broadcast(one, place // len(part.places))  # rank 0 where each has all
    return model


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A stage, or a replica, on each of two ranks."""
    link, micro_batches = str(point["link"]), int(point["micro_batches"])
    group = join(link, gpu)
    on_processors = link == "gloo"
    size = ON_PROCESSORS if on_processors else GPT_SIZES["gpt2"]
    case = Case(size, group, seed, bf16=not on_processors)
    part: Part = (
        Replicated(case)
        if arm == "data_parallel"
        else Pipelined(case, micro_batches, SCHEDULES[arm])
    )
    return arm_of(
        part,
        lambda: error_of(part),
        part.costs,
        tokens=ROWS * size.tokens,
        model=f"{size.layers} blocks of width {size.width}, {ROWS} x {size.tokens} tokens",
    )
