"""attention/document_mask: documents of many lengths in a batch, none of which sees another."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

import torch
from gpulift_work.documents import ATTENTIONS, KERNELS, packed, padded
from gpulift_work.llama import LLAMA_SIZES, Attend, Llama, causal_shared_attention, for_products
from gpulift_work.training import (
    arm_on,
    device_of,
    distance,
    free_memory,
    keep_the_compiler_quiet,
    memory_of,
    require_compiler,
    set_up,
)
from gpulift_worker import Arm, Skip
from torch._dynamo.utils import get_compilation_metrics

TECHNIQUE = {
    "question": "How should documents of different lengths share a batch?",
    "expectation": """
        Forward and backward of 4 layers of llama_1b over 16384 real tokens, without a head. H100,
        in BF16: a token takes 1.46 GFLOP in products, 2.3 us at 640 TFLOP/s, and 1.2 us of passes
        over memory: 57 ms without padding. Causal attention of 8 documents of 2048 is 1.65
        TFLOP: 6 ms by cuDNN, which torch takes for rows on this card, at 400 TFLOP/s forward and
        300 backward, 9 ms by the flash kernel for many lengths, 270 and 210. Even: padded 63 ms,
        variable lengths 0.95; FlexAttention at 0.8 of flash 0.92; a mask anew for each step adds 2
        ms: 0.9. A dense mask has all 16384^2 scores made, 8 times as many as there are, and read
        with a bias of 537 MB: 120 ms at 260 TFLOP/s: 0.36. Chat: 28 rows of 2987 are 83636 tokens,
        of which 80 % are padding: 335 ms, variable lengths 5.3, FlexAttention 5.2 and 5.1, a
        dense mask 1.9, since its 120 ms do not shrink with the documents. Books: 12 rows of 8247,
        83 % padding, and attention of all rows takes 145 ms, of the documents 20: 490 ms, variable
        lengths 6.3, FlexAttention 5.9 and 5.8, a dense mask 2.8. Memory follows the tokens, 0.1 MB
        of each and each layer: 11 GB packed, 3 GB more with a dense mask, 40 and 46 GB padded. The
        toy on a processor: 4 rows of 115 for 256 tokens: 1.2 by a dense mask.
        Grouped, without any kernel: documents by length, as many at once as have 4096 tokens with
        their padding, whose gradients add up: 18 % of chat's are padding then and 9 of books', and
        each of 6 and 5 parts has gradients read and written once more, 1.5 ms: 4.0 and 5.5; of even
        ones, which have no padding, 0.92. packed_unmasked is the control: documents behind one
        another in 4 rows of 4096, as many train them, which see each other there, so that its
        gradients are others, checked against these rows' own. It has neither padding nor a mask: 57
        ms and 12 of attention, 4.7 of chat, 6.3 of books, 0.91 of even. So what padded loses to it
        is padding, and what variable lengths gain or lose beside it is the kernel: 1.05 of chat,
        0.95 of books, whose longest document attends to twice as many tokens as a row has.
    """,
    "predict": [
        "lengths:even @h100: padded 55-71 ms, grouped 0.84-0.98, packed_unmasked 0.86-0.96,"
        " dense_mask 0.25-0.45, variable_length 0.92-1.0, flex 0.87-0.96, flex_rebuilt 0.82-0.95",
        "lengths:chat @h100: padded 290-380 ms, grouped 3.4-4.5, packed_unmasked 4.0-5.1,"
        " dense_mask 1.4-2.3, variable_length 4.9-5.8, flex 4.7-5.6, flex_rebuilt 4.5-5.5",
        "lengths:chat @h200: padded 232-262 ms, grouped 3.3-4.3, packed_unmasked 4.0-4.9,"
        " dense_mask 1.35-1.65, variable_length 4.4-4.85, flex 4.3-4.8, flex_rebuilt 4.15-4.65",
        "lengths:books @h100: padded 420-560 ms, grouped 4.5-6.2, packed_unmasked 5.4-7.3,"
        " dense_mask 2.0-3.4, variable_length 5.7-6.9, flex 5.2-6.4, flex_rebuilt 5.1-6.3",
        "lengths:chat_toy @cpu: dense_mask 0.9-1.5",
    ],
    "whole_steps": True,
    "arms": [
        "padded",
        "grouped",
        "packed_unmasked",
        "dense_mask",
        "variable_length",
        "flex",
        "flex_rebuilt",
    ],
    "controls": ["packed_unmasked"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"lengths": ["even", "chat", "books", "chat_toy"]},
    "check": {
        "meaning": "gradients of the weight that is furthest off, against documents (without a "
        "mask, rows) one by one in more bits, relative to their norm",
        "tolerance": 0.05,  # BF16: 0.013 on a processor
    },
}
TOY = "chat_toy"
# The same in every launch. Chat: quantiles of log-normal lengths with a mean of 600, half of them
# below 370. Books: of Pareto's with an exponent of 0.9, half of the tokens in one of twelve.
LENGTHS = {
    "even": [2048] * 8,
    "chat": [
        *(177, 1416, 867, 1165, 74, 157, 322, 268, 244, 386, 2987, 994, 353, 117),
        *(462, 221, 767, 45, 96, 1847, 685, 422, 617, 294, 137, 507, 558, 199),
    ],
    "books": [280, 718, 2433, 253, 574, 8247, 407, 477, 313, 949, 1379, 354],
    TOY: [96, 13, 115, 32],
}
SIZES = {
    name: LLAMA_SIZES["llama_toy"] if name == TOY else replace(LLAMA_SIZES["llama_1b"], layers=4)
    for name in LENGTHS
}
FP32_TOLERANCE = 1e-5  # against FP64, on a processor
IN_ROWS = ("padded", "grouped", "packed_unmasked")  # with positions and attention of a row's own
MADE_EACH_STEP = ("dense_mask", "flex_rebuilt")  # as where each step has other documents
ROWS = 4  # of documents without a mask; a group has no more tokens than one of them


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Forward and backward over all documents, laid out and attended to as the arm does."""
    name = str(point["lengths"])
    require_parts_of(arm, name, gpu)
    device = device_of(gpu)
    if arm.startswith("flex"):
        require_compiler(device)
        keep_the_compiler_quiet()
    threads = set_up(device)
    work = Pass(arm, name, seed, device)

    def rest() -> None:
        work.model.zero_grad(set_to_none=True)
        free_memory(device)

    return arm_on(
        device,
        threads,
        step=work.step,
        error=work.error,
        rest=rest,
        tolerance=None if work.bf16 else FP32_TOLERANCE,
        metrics=lambda: {**memory_of(work.step, device), **work.facts()},
        flops=flops_of(arm, name),
        roof="" if name == TOY else "gemm/bf16",
        items=sum(LENGTHS[name]),
        item="token",
    )


def require_parts_of(arm: str, name: str, gpu: int | None) -> None:
    """Skips what a processor does not have, or takes too long for."""
    if gpu is None and arm.removesuffix("_rebuilt") in KERNELS:
        raise Skip("the kernels of this attention need a GPU", "use a machine with one")
    if gpu is None and name != TOY:
        raise Skip(
            "layers of llama_1b take a minute on a processor",
            "take the toy, or a machine with a GPU",
        )


def flops_of(arm: str, name: str) -> float:
    """Of the documents themselves: their products, and the half of attention that is not masked."""
    size = replace(SIZES[name], vocabulary=0)
    return sum(replace(size, tokens=length).flops_of_row() for length in lengths_of(arm, name))


def lengths_of(arm: str, name: str) -> list[int]:
    """Of the documents; without a mask a row is one."""
    lengths = LENGTHS[name]
    return [sum(lengths) // ROWS] * ROWS if arm == "packed_unmasked" else lengths


def alike(lengths: Sequence[int]) -> list[list[int]]:
    """Places of documents by length, the longest first: as many at once as have no more tokens,
    padding among them, than a row."""
    most = sum(lengths) // ROWS
    groups: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= most:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


@dataclass(frozen=True)
class Batch:
    """What passes through the layers at once: states and gradients [rows, tokens, width]."""

    given: torch.Tensor
    gradient: torch.Tensor
    rotation: torch.Tensor


class Pass:
    """Layers, and the documents: states of tokens, and gradients of what is made of them."""

    def __init__(self, arm: str, name: str, seed: int, device: torch.device) -> None:
        self.arm, self.device = arm, device
        self.bf16 = device.type == "cuda"
        self.lengths = lengths_of(arm, name)
        size = replace(SIZES[name], tokens=max(self.lengths), vocabulary=1)
        torch.manual_seed(seed)
        with device:
            self.model = Llama(size)
            states, gradients = (list(drawn(LENGTHS[name], size.width)) for _ in range(2))
        self.states, self.gradients = (
            list(torch.cat(each).split(self.lengths)) for each in (states, gradients)
        )
        # The mean over real tokens: of padding nothing is asked.
        self.gradients = [each / sum(self.lengths) for each in self.gradients]
        every = list(range(len(self.lengths)))
        groups = alike(self.lengths) if arm == "grouped" else [every]
        self.batches = [self._batch(places) for places in groups]
        self.attend = self.make_attention()

    def _batch(self, places: Sequence[int]) -> Batch:
        """These documents, laid out as the arm does."""
        lay_out = padded if self.arm in IN_ROWS else packed
        given, gradient = (
            lay_out([of_all[place] for place in places]) for of_all in (self.states, self.gradients)
        )
        rotation = self.model.rotation[:, : given.shape[1]]
        if self.arm not in IN_ROWS:  # positions begin anew in each document
            parts = [self.model.rotation[:, : self.lengths[place]] for place in places]
            rotation = torch.cat(parts, dim=1)
        return Batch(given, gradient, rotation)

    def make_attention(self) -> Attend:
        """The arm's, for these documents."""
        kind = "padded" if self.arm in IN_ROWS else self.arm.removesuffix("_rebuilt")
        return ATTENTIONS[kind](self.lengths, self.device)

    def step(self) -> None:
        """Gradients of all weights."""
        self.model.zero_grad(set_to_none=True)
        if self.arm in MADE_EACH_STEP:
            self.attend = self.make_attention()
        for batch in self.batches:
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16):
                made = through(self.model, batch.given, for_products(batch.rotation), self.attend)
            made.backward(batch.gradient)

    def error(self) -> float:
        """The furthest that a weight's gradient is from that of documents one by one; in FP32,
        which is exact beside BF16, or else in FP64."""
        exact = copy.deepcopy(self.model).to(torch.float32 if self.bf16 else torch.float64)
        exact.zero_grad(set_to_none=True)
        kind = exact.norm.weight.dtype
        for state, gradient in zip(self.states, self.gradients, strict=True):
            rotation = self.model.rotation[:, : len(state)]
            made = through(exact, state[None].to(kind), rotation, causal_shared_attention)
            made.backward(gradient[None].to(kind))
        self.step()
        errors = [
            distance(mine.grad, theirs.grad)
            for mine, theirs in zip(
                self.model.layers.parameters(), exact.layers.parameters(), strict=True
            )
        ]
        return float(torch.tensor(errors).max())  # of which NaN is the largest

    def facts(self) -> dict[str, float]:
        """How much is padding; of packed documents what making their mask takes."""
        laid_out = sum(batch.given.shape[0] * batch.given.shape[1] for batch in self.batches)
        found = {"padding_share": 1 - sum(self.lengths) / laid_out}
        if self.arm not in IN_ROWS:
            found["mask_s"] = self._seconds_of_making()
        if self.arm.startswith("flex"):
            reasons = [each.recompile_reason for each in get_compilation_metrics()]
            found["recompiles"] = float(len(list(filter(None, reasons))))
        return found

    def _seconds_of_making(self) -> float:
        wait = torch.cuda.synchronize if self.device.type == "cuda" else lambda: None
        wait()
        start_s = monotonic()
        self.make_attention()
        wait()
        return monotonic() - start_s


def drawn(lengths: Sequence[int], width: int) -> Iterator[torch.Tensor]:
    """Noise. A part of it is common to a document's tokens: attention takes the mean of many, and
    nothing that it did wrong would be seen of what then vanishes."""
    for length in lengths:
        yield torch.randn(length, width) + torch.randn(width)


def through(
    model: Llama, state: torch.Tensor, rotation: torch.Tensor, attend: Attend
) -> torch.Tensor:
    """What its layers make of the state."""
    for layer in model.layers:
        state = layer(state, rotation, attend)
    return state
