"""distributed/pipeline_parallel: a model in stages, or its batch split over replicas."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as nnf
from gpulift_work.distributed import Group, join
from gpulift_work.first_steps import allow_tf32
from gpulift_work.llama import (
    INITIAL_DEVIATION,
    LLAMA_SIZES,
    Layer,
    LlamaSize,
    SwiGlu,
    for_products,
    rotation_of,
)
from gpulift_work.parallel import (
    OnDevice,
    all_reduce_metrics,
    arm_of,
    bus_bytes,
    exposed,
    relative_error,
)
from gpulift_work.training import (
    free_memory,
    keep_the_compiler_quiet,
    make_optimizer,
    mark_on,
    require_compiler,
)
from gpulift_worker import Arm, Failed, Skip
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.nn.parallel import DistributedDataParallel

TECHNIQUE = {
    "question": "Is a model that fits on one GPU trained faster in stages, each on a GPU, or as "
    "two replicas with half of the batch each, and which schedule waits least?",
    "expectation": """
        32 layers of the shape of Llama 3.2 1B, without embedding and output layer, so that stages
        are equal: 1.95 G parameters, 0.97 a stage; products in BF16 by autocast, states between
        stages in BF16, layers compiled. A row of 4096 tokens is a micro-batch; replicas take half
        of the rows each, one by one, and exchange gradients behind the last. 54 TFLOP a row: 108
        ms, as 16 layers take of 8192 tokens in job/step, and 10 for weights' casts and for
        gradients that are added up in each micro-batch, 118; 59 a stage. Replicas: AdamW 55 GB, 19
        ms; 7.8 GB of gradients, 24 ms at 330 GB/s, hide behind a backward pass of 78 and slow it by
        5: 142, 260, 496, 968 and 1912 ms of 2, 4, 8, 16 and 32 rows. Stages wait for the first and
        the last micro-batch, 1 / (m + 1) of their time: 33, 20, 11, 6 and 3 %; AdamW takes half, 9
        ms: 187, 305, 541, 1015 and 1960 ms: 0.76, 0.85, 0.92, 0.95, 0.975. 1F1B takes as long as
        GPipe. Interleaved, two stages of 8 layers a rank, waits 1 / (2m + 1): 157, 275, 512, 985
        and 1930 ms: 0.90, 0.94, 0.97, 0.98, 0.99. Zero bubble, with as many stages, fills two
        thirds of that wait with gradients of weights, 1 / (6m + 1): 4, 2 and 1 % at 4, 8 and 16, if
        a forward pass takes as long as either half of a backward one. But a compiled layer makes
        both halves in one: uncompiled ones take 70 ms a micro-batch, and more where Python, which
        walks the graph of each, sets the pace: 300, 580 and 1140 ms at best, 0.87, 0.85, 0.85,
        which is 1.2, 1.1 and 1.05 of 1F1B's uncompiled. Sends are 17 MB, 0.1 ms each over NVLink;
        through the host 0.65 ms, waited for twice a micro-batch: 0.02 less; replicas' gradients
        then take 300 ms, of which 220 show: 357, 475 and 711 ms of 2, 4 and 8 rows, and stages win:
        1.9, 1.5 and 1.3. Memory: replicas 31 GB of weights, gradients and moments and 10 of
        activations; a stage half of it, GPipe 7.4 GB for each micro-batch, 1F1B for two, zero
        bubble for three of 8. On processors, 4 layers of width 64, calls set the pace: 0.4 to 0.9.
    """,
    "predict": [
        "micro_batches:4/link:nvlink @h200: data_parallel 248-260 ms, gpipe 0.85-0.89,"
        " one_f_one_b 0.85-0.89, interleaved 0.88-0.93, zero_bubble 0.6-0.68,"
        " eager_one_f_one_b 0.7-0.78",
        "micro_batches:2/link:nvlink @h100: data_parallel 130-155 ms, gpipe 0.71-0.8,"
        " one_f_one_b 0.71-0.8, interleaved 0.82-0.94, zero_bubble 0.6-0.95,"
        " eager_one_f_one_b 0.5-0.68",
        "micro_batches:4/link:nvlink @h100: data_parallel 240-280 ms, gpipe 0.81-0.89,"
        " one_f_one_b 0.81-0.89, interleaved 0.89-0.97, zero_bubble 0.65-0.93,"
        " eager_one_f_one_b 0.6-0.75",
        "micro_batches:8/link:nvlink @h100: data_parallel 460-530 ms, gpipe 0.88-0.95,"
        " one_f_one_b 0.88-0.95, interleaved 0.92-0.99, zero_bubble 0.65-0.9,"
        " eager_one_f_one_b 0.65-0.8",
        "micro_batches:16/link:nvlink @h100: data_parallel 900-1050 ms, one_f_one_b 0.91-0.98,"
        " interleaved 0.93-1.0, zero_bubble 0.65-0.88, eager_one_f_one_b 0.68-0.83",
        "micro_batches:32/link:nvlink @h100: data_parallel 1.8-2.1 s, one_f_one_b 0.93-1.0,"
        " interleaved 0.94-1.01",
        "micro_batches:4/link:host @h100: one_f_one_b 1.3-1.7, interleaved 1.4-1.85",
        "micro_batches:8/link:host @h100: one_f_one_b 1.15-1.45, interleaved 1.2-1.5",
        "micro_batches:8/link:gloo: gpipe 0.4-0.9, one_f_one_b 0.4-0.9",
    ],
    "found": """
        Two H200s, 4 micro-batches, three launches: replicas 258 ms, GPipe and 1F1B 0.87,
        interleaved 0.90, uncompiled 1F1B 0.74. Zero bubble, uncompiled, 0.66 to 0.79: each half of
        its backward passes walks the graph in Python, 6,786 launches in place of 6,459, and issuing
        them takes the host all of its 329 to 392 ms.
        Replicas take one row at a time, though two would fit, by reckoning 4 % faster. Peaks 38,
        33, 23, 26 and 30 GB.
    """,
    "whole_steps": True,
    "spans_hosts": True,
    "arms": [
        "data_parallel",
        "gpipe",
        "one_f_one_b",
        "interleaved",
        "zero_bubble",
        "eager_one_f_one_b",
    ],
    "controls": ["eager_one_f_one_b"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"micro_batches": [2, 4, 8, 16, 32], "link": ["nvlink", "host", "gloo"]},
    "check": {
        "meaning": "gradients of the first step against TF32's of one process, relative to their "
        "norm",
        "tolerance": 0.1,  # BF16: 0.044 of llama_1b's
    },
}
LAYERS = 32  # of which a stage has 16: 0.97 G parameters
DISTINCT_ROWS = 8  # of a step; more repeat them, so that an exact step takes seconds
GRADIENT_TOLERANCE = 1e-5  # in FP32
LOSS_TOLERANCE = 1e-3
MARKED_STEPS = 3
# What GPipe keeps of one: 84 KB of a token in each of 16 layers, and each layer's weights in BF16.
MICRO_BATCH_BYTES = 7.4e9
STATE_BYTES = 20e9  # weights, gradients, moments of a stage, and what all processes hold
TOY = replace(LLAMA_SIZES["llama_toy"], layers=4)
WORK = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")


@dataclass(frozen=True)
class Order:
    """How micro-batches pass the stages."""

    schedule: Callable[..., Any]
    stages: int = 1  # of a rank
    compiled: bool = True
    splits_backward: bool = False  # gradients of weights wait until there is nothing else to do

    def places_of(self, rank: int, ranks: int) -> list[int]:
        """Of a rank's stages in the model."""
        return [rank + ranks * turn for turn in range(self.stages)]

    def bubble_share(self, micro_batches: int, ranks: int) -> float:
        """That a rank waits of the time between two updates: one micro-batch in a stage for each
        rank but one; where the backward pass is split, its third that is not split off."""
        thirds = 3 if self.splits_backward else 1
        return (ranks - 1) / (thirds * self.stages * micro_batches + ranks - 1)


ORDERS = {
    "gpipe": Order(ScheduleGPipe),
    "one_f_one_b": Order(Schedule1F1B),
    "interleaved": Order(ScheduleInterleaved1F1B, stages=2),
    # A compiled layer makes gradients of inputs and of weights in one.
    "zero_bubble": Order(
        ScheduleInterleavedZeroBubble, stages=2, compiled=False, splits_backward=True
    ),
    "eager_one_f_one_b": Order(Schedule1F1B, compiled=False),
}


@dataclass(frozen=True)
class Case:
    """What all arms train: rows of states, to be mapped to others. A row is a micro-batch."""

    size: LlamaSize
    micro_batches: int
    group: Group
    seed: int

    @property
    def bf16(self) -> bool:
        """Whether products and states are."""
        return bool(self.group.device.type == "cuda")

    def layer(self, index: int) -> Layer:
        """Of the whole model: the same on all ranks."""
        torch.manual_seed(self.seed + 1 + index)
        with self.group.device:
            layer = Layer(self.size, SwiGlu(self.size))
            for parameter in layer.parameters():
                if parameter.dim() > 1:  # those of norms are 1
                    nn.init.normal_(parameter, std=INITIAL_DEVIATION)
        return layer

    def rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Given and wanted states of all ranks [micro-batches, tokens, width]."""
        given, target = self.distinct_rows()
        times = self.micro_batches // len(given)
        return given.repeat(times, 1, 1), target.repeat(times, 1, 1)

    def distinct_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """As many of them as differ."""
        torch.manual_seed(self.seed)
        rows = min(self.micro_batches, DISTINCT_ROWS)
        shape = (2, rows, self.size.tokens, self.size.width)
        dtype = torch.bfloat16 if self.bf16 else torch.float32
        given, target = torch.randn(shape, device=self.group.device, dtype=dtype)
        return given, target


class Stage(nn.Module):
    """Layers that follow each other."""

    rotation: torch.Tensor

    def __init__(self, case: Case, indices: range, bf16: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(case.layer(index) for index in indices)
        self.is_first = 0 in indices
        self.bf16 = bf16
        size = case.size
        rotation = rotation_of(size.tokens, size.width // size.heads).to(case.group.device)
        self.register_buffer("rotation", rotation, persistent=False)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        if self.is_first:  # as behind an embedding, which needs the gradient
            state = state.detach().requires_grad_()
        sent = state.dtype
        with torch.autocast(state.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            rotation = for_products(self.rotation)
            state = state.float()  # within a stage, as autocast leaves what follows an embedding
            for layer in self.layers:
                state = layer(state, rotation)
        return state.to(sent)


class Part(OnDevice):
    """What a rank has of the training. It rests without weights, gradients and moments: those of
    all arms do not fit a GPU."""

    def __init__(self, case: Case, stages: list[range], *, compiled: bool) -> None:
        super().__init__(case.group)
        self.case = case
        self.indices = [index for indices in stages for index in indices]  # of its layers
        self.stages = [Stage(case, indices, case.bf16) for indices in stages]
        self.layers = [layer for stage in self.stages for layer in stage.layers]
        if compiled and case.bf16:  # on processors it would take longer than all steps
            for layer in self.layers:
                layer.compile()
        self.parameters = [each for layer in self.layers for each in layer.parameters()]
        name = "llama_1b" if case.bf16 else "llama_toy"
        self.optimizer = make_optimizer(name, self.parameters)
        self.begin()

    def begin(self) -> None:
        """With the weights of the first step, without gradients and moments."""
        self.rest()
        for index, layer in zip(self.indices, self.layers, strict=True):
            for parameter, first in zip(
                layer.parameters(), self.case.layer(index).parameters(), strict=True
            ):
                parameter.data = first.data
        self.connect()
        self.resting = False

    def rest(self) -> None:
        """Waits, and keeps what was compiled."""
        self.synchronize()
        self.disconnect()
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer.state.clear()
        for parameter in self.parameters:
            parameter.data = torch.empty(0, device=self.device)
        gc.collect()  # DistributedDataParallel holds itself, and its buckets with it
        free_memory(self.device)
        self.resting = True

    def wake(self) -> None:
        """Where it rests: begins anew, and takes the step that makes the moments."""
        if self.resting:
            self.begin()
            self.step()

    def step(self) -> None:
        """As a training loop does."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward()
        self.optimizer.step()

    def connect(self) -> None:
        """Makes what exchanges, and this rank's rows."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Drops them."""
        raise NotImplementedError

    def backward(self) -> torch.Tensor:
        """Leaves the gradients of the mean loss of all rows; this rank's share of that loss."""
        raise NotImplementedError

    def costs(self) -> dict[str, float]:
        """Of the exchange."""
        raise NotImplementedError


class Replicated(Part):
    """All layers and a rank's share of the rows, whose gradients are exchanged once a step."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, [range(case.size.layers)], compiled=True)

    def connect(self) -> None:
        ranks, rank = self.group.ranks, self.group.rank
        self.rows = [rows.chunk(ranks)[rank].clone() for rows in self.case.rows()]
        self.forward: DistributedDataParallel | None = DistributedDataParallel(
            self.stages[0], gradient_as_bucket_view=True, broadcast_buffers=False
        )

    def disconnect(self) -> None:
        self.rows, self.forward = [], None

    def backward(self) -> torch.Tensor:
        return self._backward(exchanges=True)

    def _backward(self, *, exchanges: bool) -> torch.Tensor:
        assert self.forward is not None
        given, target = self.rows
        count = len(given)
        losses = []
        for row in range(count):
            exchanges_now = exchanges and row == count - 1
            with nullcontext() if exchanges_now else self.forward.no_sync():
                output = self.forward(given[row : row + 1])
                loss = loss_of(output, target[row : row + 1]) / count
                loss.backward()
            losses.append(loss.detach())
        return torch.stack(losses).sum() / self.group.ranks

    def _alone(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._backward(exchanges=False)
        self.optimizer.step()

    def costs(self) -> dict[str, float]:
        found = exposed(self, self._alone)
        self.optimizer.zero_grad(set_to_none=True)  # the message is as large
        message = torch.zeros(sum(each.numel() for each in self.parameters), device=self.device)
        return {
            **found,
            "exchanged_bytes": bus_bytes(message.nbytes, self.group),
            **all_reduce_metrics(self, message),
        }


class Pipelined(Part):
    """Some stages of the model, which all rows pass."""

    def __init__(self, case: Case, order: Order) -> None:
        self.order = order
        ranks = case.group.ranks
        self.places = order.places_of(case.group.rank, ranks)
        self.count = ranks * order.stages  # of all stages
        layers = case.size.layers // self.count
        stages = [range(layers * place, layers * (place + 1)) for place in self.places]
        super().__init__(case, stages, compiled=order.compiled)

    def connect(self) -> None:
        given, target = self.case.rows()
        self.given = (given.clone(),) if 0 in self.places else ()  # or both would be kept
        self.target = target.clone() if self.count - 1 in self.places else None
        # Between two stages; torch 2.15 sends no gradients back of what does not ask for them.
        self.state = torch.empty_like(given[:1], device="meta", requires_grad=True)
        self.staged = [
            PipelineStage(
                stage,
                place,
                self.count,
                self.device,
                input_args=(self.state,),
                output_args=(self.state,),
            )
            for stage, place in zip(self.stages, self.places, strict=True)
        ]
        micro_batches = self.case.micro_batches
        self.schedule = self.order.schedule(
            self.staged if self.order.stages > 1 else self.staged[0],
            micro_batches,
            loss_fn=lambda output, target: loss_of(output, target) / micro_batches,
            scale_grads=False,  # a pass over all of them
        )

    def disconnect(self) -> None:
        self.given, self.target, self.staged, self.schedule = (), None, [], None

    def backward(self) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        self.schedule.step(*self.given, target=self.target, losses=losses, return_outputs=False)
        return torch.stack(losses).sum().detach() if losses else torch.zeros((), device=self.device)

    def costs(self) -> dict[str, float]:
        """What this rank waits for others between marks around all it does itself, and what it
        sends: states to the next stage and their gradients to the one before."""
        work = Spans(self.device)
        for stage in self.staged:
            for name in WORK:
                setattr(stage, name, work.around(getattr(stage, name)))
        update = Spans(self.device)
        step = update.around(self.optimizer.step)
        steps = Spans(self.device)

        def train(count: int) -> None:
            for _ in range(count):
                self.optimizer.zero_grad(set_to_none=True)
                self.backward()
                step()

        train(1)  # which fills the queue, as the steps of a window find it
        work.clear()
        update.clear()
        steps.around(train)(MARKED_STEPS)
        self.synchronize()
        step_s, work_s, update_s = (
            spans.seconds() / MARKED_STEPS for spans in (steps, work, update)
        )
        waiting_s = step_s - work_s - update_s
        ranks = self.group.ranks
        return {
            "exposed_communication_s": waiting_s,
            "step_without_exchange_s": step_s - waiting_s,
            "bubble_share": waiting_s / (step_s - update_s),
            "predicted_bubble_share": self.order.bubble_share(self.case.micro_batches, ranks),
            "exchanged_bytes": float(self._sent() * self.case.micro_batches * self.state.nbytes),
        }

    def _sent(self) -> int:
        """States and gradients of a micro-batch that go to another rank."""
        neighbours = [place + step for place in self.places for step in (-1, 1)]
        return sum(0 <= place < self.count and place not in self.places for place in neighbours)


class Spans:
    """How long calls take: by marks in a GPU's queue around each, on a processor by its clock."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: list[tuple[Any, Any]] = []

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call with a mark ahead and one behind."""

        def marked(*arguments: Any, **named: Any) -> Any:
            begin = self._mark()
            made = call(*arguments, **named)
            self.marks.append((begin, self._mark()))
            return made

        return marked

    def clear(self) -> None:
        """Forgets the calls."""
        self.marks.clear()

    def seconds(self) -> float:
        """Of all calls, once they are done."""
        if self.device.type == "cuda":
            return sum(float(begin.elapsed_time(end)) for begin, end in self.marks) / 1e3
        return sum(float(end - begin) for begin, end in self.marks)

    def _mark(self) -> Any:
        return mark_on(self.device) if self.device.type == "cuda" else monotonic()


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Of a row or several: the mean."""
    return nnf.mse_loss(output.float(), target.float())


def error_of(part: Part) -> float:
    """Of the first step's gradients of this rank's layers, against those of one process that has
    all layers and rows. Throws Failed where the loss is off."""
    part.rest()
    expected_loss, expected = exact(part.case, part.indices)
    part.begin()
    loss = part.backward()
    dist.all_reduce(loss)
    gradients = relative_error(gradients_of(part.layers), expected)
    apart = abs(float(loss) / expected_loss - 1)
    if not apart <= LOSS_TOLERANCE:  # not a number is off, too
        raise Failed(f"the loss is off by {apart:.2g}")
    return gradients


def exact(case: Case, indices: list[int]) -> tuple[float, list[torch.Tensor]]:
    """The loss of all rows, and its gradients of some layers: in FP32, on a GPU by TF32."""
    allow_tf32(True)
    model = Stage(case, range(case.size.layers), bf16=False)
    given, target = case.distinct_rows()
    loss = 0.0
    for row in range(len(given)):
        of_row = loss_of(model(given[row : row + 1].float()), target[row : row + 1]) / len(given)
        of_row.backward()
        loss += float(of_row.detach())
    gradients = gradients_of([model.layers[index] for index in indices])
    del model, of_row
    free_memory(case.group.device)
    allow_tf32(False)
    return loss, gradients


def gradients_of(layers: list[nn.Module]) -> list[torch.Tensor]:
    """Of all parameters; nothing of what has none."""
    parameters = (parameter for layer in layers for parameter in layer.parameters())
    return [each.grad if each.grad is not None else torch.zeros_like(each) for each in parameters]


def require_memory(arm: str, case: Case) -> None:
    """Skips what keeps more than the GPU has: one rank alone would find out, and others wait."""
    if arm != "gpipe" or case.group.device.type == "cpu":
        return
    total_bytes = torch.cuda.get_device_properties(case.group.device).total_memory
    needed_bytes = STATE_BYTES + case.micro_batches * MICRO_BATCH_BYTES
    if needed_bytes > total_bytes:
        raise Skip(
            f"GPipe keeps {case.micro_batches} micro-batches, {needed_bytes / 1e9:.0f} GB with the"
            f" weights, and this card has {total_bytes / 1e9:.0f}",
            "take fewer, or a larger card",
        )


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Stages, or a replica, on each of two ranks."""
    link, micro_batches = str(point["link"]), int(point["micro_batches"])
    on_processors = link == "gloo"
    size = TOY if on_processors else replace(LLAMA_SIZES["llama_1b"], layers=LAYERS)
    group = join(link, gpu)
    case = Case(size, micro_batches, group, seed)
    require_memory(arm, case)
    if not on_processors:
        require_compiler(group.device)
        keep_the_compiler_quiet()
        torch._dynamo.config.optimize_ddp = False  # which would cut layers to DDP's buckets
    part: Part = Replicated(case) if arm == "data_parallel" else Pipelined(case, ORDERS[arm])
    return arm_of(
        part,
        lambda: error_of(part),
        part.costs,
        tokens=micro_batches * size.tokens,
        model=f"{size.layers} layers of width {size.width}, rows of {size.tokens} tokens",
        rest=part.rest,
        wake=part.wake,
        tolerance=GRADIENT_TOLERANCE if on_processors else None,
    )
