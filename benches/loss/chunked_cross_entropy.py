"""loss/chunked_cross_entropy: an eager training step, its output layer and loss by libraries."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_work import repeats
from gpulift_work.losses import (
    HiddenLoss,
    LossOfHidden,
    compiled,
    cut_cross_entropy,
    liger,
    of_logits,
)
from gpulift_work.resting import Resting
from gpulift_work.training import (
    TEXT_SIZES,
    arm_on,
    device_of,
    errors_of,
    keep_the_compiler_quiet,
    memory_of_step,
    require_compiler,
    require_gpu_for,
    set_up,
    use_cache_of_run,
    work_of_step,
)
from gpulift_worker import Arm, Failed, Skip, check_seed, spent
from torch._inductor import metrics as inductor_metrics

TECHNIQUE = {
    "question": "Which loss for a large vocabulary: what do those save that never hold all logits, "
    "and what do they cost?",
    "expectation": """
        All else of the step is the same eager code. llama_1b, 8192 tokens, BF16 on an H100: 1.05 G
        logits are 2.1 GB in BF16 and 4.2 GB in FP32, of which the backward pass of eager steps
        holds three at once: 12.6 GB of a peak of 45 GB. Products of the output layer are 12.9
        TFLOP, 20 ms of 188, passes over logits some 45 GB, 15 ms. Compiled, logits stay in BF16,
        and are read twice and written once more: 11 ms less, 1.06, and 8 GB less. By chunks of the
        compiler 10 GB less, for 8 times 1.1 GB to add up the weight's gradient in BF16, 3 ms: 1.04.
        Own chunks add it up in FP32 and pass over logits as often as eager steps do: 11 ms more,
        0.95. Liger takes 32 chunks of 256 tokens, passes over logits in one kernel, 13 ms less, and
        has small products and 32 gradients to add up, 20 ms more: 0.96. Cut cross entropy makes
        logits in a kernel's registers, twice, and leaves out gradients that vanish: 1.02. With
        those gradients it makes two products of 4.3 TFLOP more, in kernels that add up under locks
        at half the rate of a library's, 30 ms: 0.85. All of them 9 to 10 GB below eager. 248,320
        words, 4 layers: a step of 109 ms and 39 GB, of which logits are 28 ms of passes and 24 GB.
        Compiled 1.29 and 22 GB, by its chunks 1.2, the own 0.83, Liger with 64 chunks of 128 tokens
        0.7, cut 1.15, at 17 to 21 GB. GPT-2, 412 M logits: 27 ms and 9.5 GB, of which 5.5 ms and 5
        GB: compiled 1.2, by chunks 1.17, own 0.92, Liger 0.9, cut 0.9 with all gradients, at 5 to 6
        GB; what it leaves out by default is a quarter of an untrained GPT-2's gradient, whose words
        are all about as likely. Gradients in BF16 are 0.03 to 0.045 off in all arms. The toy has
        nothing to save: 8 chunks are 8 times the calls, 0.8. Not measured: a model that has
        learned, whose logits leave more or less of the gradient to cut.
    """,
    "predict": [
        "model:llama_1b @h200: eager 160-168 ms, chunked 0.92-0.99, liger 0.87-0.95,"
        " cut_cross_entropy 1.0-1.05, cut_cross_entropy_unfiltered 0.78-0.93, compiled"
        " 1.05-1.1, compiled_chunked 1.02-1.08",
        "model:llama_1b @h100: eager 178-198 ms, chunked 0.9-1.0, liger 0.93-1.0,"
        " cut_cross_entropy 0.99-1.06, cut_cross_entropy_unfiltered 0.76-0.93, compiled 1.03-1.1,"
        " compiled_chunked 1.0-1.08",
        "model:llama_248k @h100: eager 98-120 ms, chunked 0.75-0.93, liger 0.6-0.85,"
        " cut_cross_entropy 1.05-1.3, compiled 1.17-1.4, compiled_chunked 1.08-1.3",
        "model:gpt2 @h100: eager 24-30 ms, chunked 0.85-1.0, liger 0.8-1.0,"
        " cut_cross_entropy_unfiltered 0.8-1.0, compiled 1.1-1.28, compiled_chunked 1.06-1.25",
        "model:llama_toy: chunked 0.7-0.95",
    ],
    "whole_steps": True,
    "arms": [
        "eager",
        "chunked",
        "liger",
        "cut_cross_entropy",
        "cut_cross_entropy_unfiltered",
        "compiled",
        "compiled_chunked",
    ],
    "controls": ["chunked"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "llama_248k", "gpt2", "llama_toy"]},
    "check": {
        "meaning": "gradients of a whole batch, and within 0.01 the loss, against those of the same"
        " model in more bits, relative",
        "tolerance": 0.06,
    },
}
CUT = ("cut_cross_entropy", "cut_cross_entropy_unfiltered")
CHUNKS = 8  # as many as torch's compiler makes
# Of gradients in BF16. Eager they are 0.028 to 0.040 off on an H100, by own chunks 0.043. Chunks of
# the libraries, 8 to 64, are added up in BF16, and cut cross entropy leaves out small gradients.
TOLERANCES = {"eager": 0.05, "liger": 0.08, **dict.fromkeys(CUT, 0.08), "compiled_chunked": 0.08}
# Whose first weights make all words about as likely: below the library's threshold nearly all are.
FLAT = ("gpt2",)
FP32_TOLERANCE = 1e-5  # of gradients, where a model is trained in FP32
LOSS_TOLERANCE = 0.01


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step whose output layer and loss are the arm's."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    require_parts_of(arm, name, device)
    threads = set_up(device)
    job = Job(name, device, seed, arm)
    training = job.training
    if arm.startswith("compiled"):
        with spent("compile"):
            training.step()
            training.synchronize()

    def metrics() -> dict[str, float]:
        job.wake()  # with the moments, which a first step does not have at its peak
        return {**memory_of_step(training), **job.facts}

    made = arm_on(
        device,
        threads,
        step=training.step,
        error=job.error,
        rest=job.rest,
        wake=job.wake,
        tolerance=TOLERANCES.get(arm) if training.bf16 else FP32_TOLERANCE,
        metrics=metrics,
        roof="gemm/bf16" if training.bf16 else "",
        **work_of_step(name),
    )
    job.notes.update(made.notes)
    return replace(made, notes=job.notes)  # to which its check adds


class Job(Resting):
    """A training with the arm's loss."""

    def __init__(self, name: str, device: torch.device, seed: int, arm: str) -> None:
        super().__init__(name, device, seed)
        self.arm, self.work = arm, work_of_step(name)
        self.facts: dict[str, float] = {}
        self.notes = {"check": repeats.SAID} if repeats.expected() else {}
        self.training.loss_of = LossOfHidden(self.training.model, LOSSES[arm]())

    def error(self) -> float:
        """Of the gradients; in a later launch of the losses of two steps."""
        earlier = repeats.expected()
        with self.from_seed(check_seed()):
            if earlier is None:
                self.begin()
                of_gradients = self.error_of_gradients()
            self.begin()
            found = repeats.take_steps(self.training, self.work)
        self.facts |= found
        return of_gradients if earlier is None else repeats.deviation(found, earlier)

    def error_of_gradients(self) -> float:
        """Of the whole batch: what is compiled for another size is another code."""
        training = self.training
        of_loss, of_gradients = errors_of(training, len(training.input), self.notes)
        self.rest()
        self.facts = {"loss_error": of_loss, "gradient_error": of_gradients}
        if not of_loss <= LOSS_TOLERANCE:
            raise Failed(f"the loss is {of_loss:.2g} from that in more bits")
        if self.arm == "compiled_chunked" and not inductor_metrics.num_auto_chunking:
            raise Failed("torch's compiler made no chunks")
        return of_gradients


def require_parts_of(arm: str, name: str, device: torch.device) -> None:
    """Skips an arm that this machine or this model cannot have."""
    if arm in ("eager", "chunked"):
        return
    if arm in ("liger", *CUT) and device.type == "cpu":
        raise Skip("the kernels of this loss need a GPU", "use a machine with one")
    if arm == CUT[0] and name in FLAT:
        raise Skip(
            "of gradients of first weights it leaves out too much: 0.25 off on an H200",
            f"see {CUT[1]}, or train on from weights that have learnt",
        )
    size = TEXT_SIZES[name]
    if arm == "compiled_chunked" and size.vocabulary <= size.width:
        raise Skip(
            "logits are no larger than the states they are made of: the compiler makes no chunks",
            "take a model with more words",
        )
    require_compiler(device)
    if arm.startswith("compiled"):
        # Where the chunks are not made but found, they are not counted.
        use_cache_of_run(f"loss-{name}-{arm}", cold=repeats.expected() is None)
        keep_the_compiler_quiet()


def chunked(state: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean loss, which never holds the logits of more than a chunk of tokens."""
    loss: torch.Tensor = GradientInForward.apply(state, weight, target)
    return loss


def unfiltered() -> HiddenLoss:
    """Cut cross entropy that leaves out no gradient."""
    loss: Callable[..., torch.Tensor] = cut_cross_entropy()
    return partial(loss, filter_eps=None)


LOSSES: dict[str, Callable[[], HiddenLoss]] = {
    "eager": lambda: of_logits,
    "chunked": lambda: chunked,
    "liger": liger,
    "cut_cross_entropy": cut_cross_entropy,
    "cut_cross_entropy_unfiltered": unfiltered,
    "compiled": compiled,
    "compiled_chunked": lambda: compiled(by_chunks=True),
}


class GradientInForward(torch.autograd.Function):
    """The mean loss, whose gradients are made beside it: a chunk's logits are needed once."""

    @staticmethod
    def forward(
        ctx: Any, state: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Keeps the gradients, scaled for a mean."""
        of_state = torch.empty_like(state)
        of_weight = torch.zeros_like(weight, dtype=torch.float32)
        losses = []
        parts = (values.chunk(CHUNKS) for values in (state, target, of_state))
        for one, wanted, place in zip(*parts, strict=True):
            loss, gradient = loss_and_gradient(nnf.linear(one, weight), wanted, len(target))
            losses.append(loss)
            torch.mm(gradient, weight, out=place)
            of_weight += gradient.T @ one
        ctx.save_for_backward(of_state, of_weight.to(weight.dtype))
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx: Any, *scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients that the forward pass kept."""
        of_state, of_weight = ctx.saved_tensors
        return of_state * scale[0], of_weight * scale[0], None


def loss_and_gradient(
    logits: torch.Tensor, target: torch.Tensor, tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A chunk's part of the mean loss over so many tokens, and the gradient of its logits."""
    logarithms = torch.log_softmax(logits.float(), dim=1)
    place = target[:, None]
    loss = -logarithms.gather(1, place).sum() / tokens
    gradient = logarithms.exp().scatter_add(1, place, torch.full_like(logarithms[:, :1], -1.0))
    return loss, (gradient / tokens).to(logits.dtype)
