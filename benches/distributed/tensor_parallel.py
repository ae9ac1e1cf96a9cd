"""distributed/tensor_parallel: a model split within its layers, or a batch over its replicas."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
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
from gpulift_work.training import free_memory
from gpulift_worker import Arm, Failed, Skip
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

TECHNIQUE = {
    "question": "Is a model that fits on one GPU trained faster when two GPUs share each layer, or "
    "when each has a replica and half of the batch?",
    "expectation": "A block has 12 h^2 parameters, in BF16 with its gradient and moments; its "
    "products cost 6 x 12 h^2 operations a token, the same for all arms. Data parallel exchanges "
    "24 h^2 bytes a block in the backward pass, tensor parallel the activations of all tokens "
    "four times a block, and waits for them. Hidden 1024, 12 blocks, 16 x 1024 tokens: 14.8 TFLOP, "
    "7.4 a GPU: 15 ms at 500 TFLOPS and some 13 ms for what is bound by memory, 28 ms; 302 MB of "
    "gradients are hidden. tp2: 48 all-reduces of 34 MB at 230 GB/s are 7 ms, norms and residuals "
    "of all tokens on both GPUs 4 ms more, half as wide products 3 ms, and DTensor's dispatch, "
    "some 100 us at each of 84 layers and back, makes the step as long as the host takes, 50 to "
    "60 ms: 0.5. Sequence: norms are split, an all-gather and a reduce-scatter for each "
    "all-reduce, twice the calls: 0.45 to 0.5. Hidden 8192, 2 blocks, 8 x 1024 tokens: 79 TFLOP, "
    "39.6 a GPU: 66 ms at 600 TFLOPS; gradients of 3.2 GB, 10 ms at 330 GB/s beside a backward "
    "pass of 44 ms, slow it by 2 ms; AdamW 22.5 GB, 8 ms: 76 ms. tp2: 8 all-reduces of 134 MB, "
    "0.47 ms each, 4 ms exposed, norms and residuals 3 ms more, the optimizer half, 4 ms less: 0.9 "
    "to 1.0. Through the host, 26 GB/s: hidden 1024 48 x 1.3 ms = 62 ms against gradients in "
    "12 ms, hidden: 0.3; hidden 8192 41 ms against 124 ms of which 40 are hidden: 1.3. Memory at "
    "8192: 13 GB of weights, gradients and moments against 6.4. On processors one block and 128 "
    "tokens: 50 MB of gradients against 4 x 0.5 MB of activations over the loopback: 1.1 to 2.",
    "predict": [
        {
            "case": {"hidden": 1024, "link": "nvlink"},
            "step_time_s": {"data_parallel": [0.0252, 0.0308]},
            "speedup": {"tp2": [0.45, 0.55], "tp2_sequence": [0.45, 0.5]},
        },
        {
            "case": {"hidden": 8192, "link": "nvlink"},
            "step_time_s": {"data_parallel": [0.0684, 0.0836]},
            "speedup": {"tp2": [0.9, 1]},
        },
        {"case": {"hidden": 1024, "link": "host"}, "speedup": {"tp2": [0.27, 0.33]}},
        {"case": {"hidden": 8192, "link": "host"}, "speedup": {"tp2": [1.17, 1.43]}},
        {"case": {"hidden": 1024, "link": "gloo"}, "speedup": {"tp2": [1.1, 2]}},
    ],
    "claims": [],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["data_parallel", "tp2", "tp2_sequence"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"hidden": [1024, 8192], "link": ["nvlink", "host", "gloo"]},
    "check": {
        "meaning": "output and gradients of the same model in FP32 against one rank alone, "
        "relative; in the precision that is timed at most 0.02",
        "tolerance": 1e-5,
    },
}
HEAD_WIDTH = 128
TIMED_TOLERANCE = 2e-2
CHECKED_ROWS, CHECKED_TOKENS = 2, 128


@dataclass(frozen=True)
class Size:
    """Of a model and of the batch of all ranks."""

    hidden: int
    layers: int
    rows: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.layers} blocks of hidden {self.hidden}, {self.rows} x {self.tokens} tokens"


ON_GPUS = {1024: Size(1024, 12, 16, 1024), 8192: Size(8192, 2, 8, 1024)}
ON_PROCESSORS = {1024: Size(1024, 1, 2, 64)}


class Attention(nn.Module):
    """Causal, with as many heads as its projections have room for."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(hidden, width) for _ in range(3))
        self.out = nn.Linear(width, hidden)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        rows, tokens, _ = state.shape
        query, key, value = (
            project(state).view(rows, tokens, -1, HEAD_WIDTH).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        mixed = nnf.scaled_dot_product_attention(query, key, value, is_causal=True)
        found: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(rows, tokens, -1))
        return found


class Mlp(nn.Module):
    """Two products with a GELU between them."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(hidden, width), nn.Linear(width, hidden)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.down(nnf.gelu(self.up(state), approximate="tanh"))
        return found


class Block(nn.Module):
    """One layer of a transformer; of its heads and of its hidden units one of so many shares."""

    def __init__(self, hidden: int, shares: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, hidden // shares)
        self.mlp = Mlp(hidden, 4 * hidden // shares)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        state = state + self.attention(self.ln_1(state))
        found: torch.Tensor = state + self.mlp(self.ln_2(state))
        return found


class Blocks(nn.Module):
    """The layers of a transformer, without embedding and without output layer."""

    def __init__(self, size: Size, shares: int = 1) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(size.hidden, shares) for _ in range(size.layers))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            state = block(state)
        return state


def make_blocks(size: Size, seed: int, like: torch.Tensor, shares: int = 1) -> Blocks:
    """On the device of a tensor and in its type: the same for the same seed."""
    torch.manual_seed(seed)
    with like.device:
        blocks = Blocks(size, shares)
    blocks.to(like.dtype)
    return blocks


class Shared(OnDevice):
    """A rank's part of a model or of its batch, in training."""

    def __init__(self, arm: str, size: Size, group: Group, seed: int, dtype: torch.dtype) -> None:
        super().__init__(group)
        self.size = size
        self.halves_the_batch = arm == "data_parallel"
        generator = torch.Generator(self.device).manual_seed(seed + 1)
        shape = (2, size.rows, size.tokens, size.hidden)
        self.given, self.target = torch.randn(
            shape, generator=generator, device=self.device, dtype=dtype
        )
        self.model: nn.Module = make_blocks(size, seed, self.given)
        if arm != "data_parallel":
            split(self.model, group, in_sequence=arm == "tp2_sequence")
        self.forward: nn.Module = self.model
        if arm == "data_parallel":
            self.forward = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer = make_optimizer(self.model)

    def step(self) -> None:
        """As a training loop does."""
        self.backward(self.given, self.target)
        self.optimizer.step()

    def backward(self, given: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Leaves the gradients of the mean loss of all rows; the output for this rank's rows."""
        self.optimizer.zero_grad(set_to_none=True)
        output: torch.Tensor = self.forward(self.own(given))
        nnf.mse_loss(output.float(), self.own(target).float()).backward()
        return output.detach()

    def own(self, rows: torch.Tensor) -> torch.Tensor:
        """Those that this rank works on."""
        return rows.chunk(self.group.ranks)[self.group.rank] if self.halves_the_batch else rows

    def costs(self) -> dict[str, float]:
        """Of the exchange: of all gradients once, or of all tokens' activations four times a
        block."""
        numbers, exchanges = self.given.numel(), 4 * self.size.layers
        if self.halves_the_batch:
            numbers, exchanges = sum(one.numel() for one in self.model.parameters()), 1
        lone = Lone(self, 1 if self.halves_the_batch else self.group.ranks)
        found = exposed(self, lone.step)
        del lone
        free_memory(self.device)
        message = torch.zeros(numbers, device=self.device, dtype=self.given.dtype)
        return {
            **found,
            "exchanged_bytes": exchanges * bus_bytes(message.nbytes, self.group),
            "parameter_bytes": bytes_of_parts(self.model),
            **all_reduce_metrics(self, message),
        }


class Lone:
    """The work of a rank with nobody to exchange with: its share of each layer, or of the batch."""

    def __init__(self, shared: Shared, shares: int) -> None:
        self.given, self.target = shared.own(shared.given), shared.own(shared.target)
        self.model = make_blocks(shared.size, 0, shared.given, shares)
        self.optimizer = make_optimizer(self.model)

    def step(self) -> None:
        """As a training loop does."""
        self.optimizer.zero_grad(set_to_none=True)
        nnf.mse_loss(self.model(self.given).float(), self.target.float()).backward()
        self.optimizer.step()


def split(model: nn.Module, group: Group, *, in_sequence: bool) -> None:
    """Heads and hidden units over the ranks; the tokens, too, of what is between them."""
    between = Shard(1) if in_sequence else Replicate()
    plan: dict[str, ParallelStyle] = {
        "attention": PrepareModuleInput(
            input_layouts=between, desired_input_layouts=Replicate()
        ),  # here and not in each projection: their gradients are summed before they are exchanged
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=between),
        "mlp": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate()),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=between),
    }
    if in_sequence:
        plan |= {"ln_1": SequenceParallel(), "ln_2": SequenceParallel()}
    mesh = init_device_mesh(group.device.type, (group.ranks,))
    parallelize_module(model, mesh, {f"blocks.*.{name}": style for name, style in plan.items()})
    if in_sequence:
        own_tokens = PrepareModuleInputOutput(
            input_layouts=Replicate(),
            desired_input_layouts=between,
            use_local_input=True,
            output_layouts=between,
            desired_output_layouts=Replicate(),
        )
        parallelize_module(model, mesh, own_tokens)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """One kernel for what is split and one for what is not: it takes no mixture."""
    parameters = list(model.parameters())
    parts = [one for one in parameters if isinstance(one, DTensor)]
    wholes = [one for one in parameters if not isinstance(one, DTensor)]
    groups = [{"params": one} for one in (parts, wholes) if one]
    return torch.optim.AdamW(groups, lr=1e-5, weight_decay=0.1, fused=True)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor, of which each rank may have a part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def bytes_of_parts(model: nn.Module) -> float:
    """Of the parameters that this rank has."""
    parameters = [one.detach() for one in model.parameters()]
    parts = [one.to_local() if isinstance(one, DTensor) else one for one in parameters]
    return float(sum(one.nbytes for one in parts))


def deviation(shared: Shared) -> float:
    """Of output and gradients of few tokens from one rank alone with the same weights, relative;
    the worse of both."""
    given, target = (
        one[:CHECKED_ROWS, :CHECKED_TOKENS].contiguous() for one in (shared.given, shared.target)
    )
    alone = make_blocks(shared.size, 0, given)
    alone.load_state_dict({name: whole(one) for name, one in shared.model.state_dict().items()})
    expected = alone(given)
    nnf.mse_loss(expected.float(), target.float()).backward()
    output = shared.backward(given, target)
    gradients = [whole(one.grad) for one in shared.model.parameters()]
    return max(
        relative_error([output], [shared.own(expected.detach())]),
        relative_error(gradients, [one.grad for one in alone.parameters()]),
    )


def error_of(arm: str, shared: Shared, seed: int) -> float:
    """Of a model like the one that is timed, in FP32. Throws Failed where the timed one is off."""
    timed = deviation(shared)
    if not timed <= TIMED_TOLERANCE:  # not a number is off, too
        raise Failed(f"output or gradients are off by {timed:.2g} in the precision that is timed")
    free_memory(shared.device)
    size = replace(shared.size, rows=CHECKED_ROWS, tokens=min(CHECKED_TOKENS, shared.size.tokens))
    found = deviation(Shared(arm, size, shared.group, seed, torch.float32))
    free_memory(shared.device)
    return found


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A part of the model, or a replica, on each of two ranks."""
    link, hidden = str(point["link"]), int(point["hidden"])
    sizes = ON_PROCESSORS if link == "gloo" else ON_GPUS
    if hidden not in sizes:
        raise Skip(f"a step of hidden {hidden} takes minutes on processors", "use GPUs")
    group = join(link, gpu)
    dtype = torch.float32 if link == "gloo" else torch.bfloat16
    shared = Shared(arm, sizes[hidden], group, seed, dtype)
    size = shared.size
    return arm_of(
        shared,
        lambda: error_of(arm, shared, seed),
        shared.costs,
        tokens=size.rows * size.tokens,
        model=str(size),
    )
