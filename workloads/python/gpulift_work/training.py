"""Training steps in PyTorch for Python arms: the models, sizes and rules of the C++ workloads.

Batch sizes, precisions and layouts are those of workloads/torch/twin.cpp; a test compares them.
Data are synthetic: seeded noise, classes and tokens from a uniform distribution.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import atexit
import logging
import math
import os
import shutil
import sysconfig
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_worker import Arm, Skip, cores
from torch import nn

from gpulift_work.experts import MOE_SIZES, Moe
from gpulift_work.llama import LLAMA_SIZES, Attend, Llama, LlamaSize
from gpulift_work.references import (
    NOTE,
    DamagedError,
    Reference,
    shared_reference,
    source_of,
    sum_of_words,
)
from gpulift_work.vit import VIT_SIZES, Vit

TIMED_STEPS = 20
FP8_CAPABILITY = (8, 9)
COLD_STEPS = 3  # the first compiles, the next two warm up and record graphs where a mode has them


@dataclass(frozen=True)
class GptSize:
    """The sizes of a GPT-2."""

    layers: int
    width: int
    heads: int
    tokens: int
    vocabulary: int

    def flops_of_row(self) -> float:
        """Of a row's products in a training step: one forward, two backward, two operations for
        each multiply-add. Of attention the half that is not masked, as a Llama's."""
        weights = 12 * self.layers * self.width**2 + self.vocabulary * self.width
        attention = 6 * self.layers * self.width * self.tokens
        return float(self.tokens * (6 * weights + attention))


@dataclass(frozen=True)
class Twin:
    """How a model is trained, in Python as in C++."""

    batch: int
    bf16: bool
    channels_last: bool = False
    model: str = ""  # where it is not the twin's name: the same model with another batch


# 50257 words, padded to a multiple of 128 as those who train them do.
GPT_SIZES = {
    "gpt2": GptSize(12, 768, 12, 1024, 50304),
    "gpt2_large": GptSize(36, 1280, 20, 1024, 50304),
    "gpt_small": GptSize(4, 768, 12, 128, 50304),
    "gpt_baby": GptSize(6, 384, 6, 256, 65),  # of nanoGPT's README, for letters
    "gpt_toy": GptSize(2, 64, 4, 32, 64),
    "gpt2_bytes": GptSize(12, 768, 12, 1024, 256),  # for texts without a tokenizer
    "gpt_bytes_toy": GptSize(2, 64, 4, 32, 256),
    "gpt2_unpadded": GptSize(12, 768, 12, 1024, 50257),  # as published
    "gpt_toy_unpadded": GptSize(2, 64, 4, 32, 61),
}
TEXT_SIZES: Mapping[str, GptSize | LlamaSize] = {**GPT_SIZES, **LLAMA_SIZES, **MOE_SIZES}
IMAGE_SIZES = {  # pixels, classes
    "resnet50": (224, 1000),
    "resnet18": (32, 10),
    **{name: (size.pixels, size.classes) for name, size in VIT_SIZES.items()},
}
# Multiply-adds of an image forward (K. He et al., arXiv:1512.03385, with torchvision's stride), and
# those of them in the first convolution.
IMAGE_PRODUCTS = {"resnet50": (4_089_184_256, 118_013_952)}
TWINS = {
    "resnet50": Twin(64, bf16=True, channels_last=True),
    "resnet50_128": Twin(128, bf16=True, channels_last=True, model="resnet50"),
    "resnet50_256": Twin(256, bf16=True, channels_last=True, model="resnet50"),
    "resnet18": Twin(32, bf16=False),
    "gpt2": Twin(8, bf16=True),
    "gpt2_large": Twin(4, bf16=True),
    "gpt_small": Twin(1, bf16=True),
    "gpt_baby": Twin(1, bf16=False),
    "gpt2_unpadded": Twin(8, bf16=True),
    "gpt_toy": Twin(8, bf16=False),
    "gpt_toy_unpadded": Twin(8, bf16=False),
    "gpt2_bytes": Twin(8, bf16=True),
    "gpt_bytes_toy": Twin(8, bf16=False),
    "llama_1b": Twin(2, bf16=True),
    "llama_1b_untied": Twin(2, bf16=True),
    "llama_248k": Twin(2, bf16=True),
    "llama_3b": Twin(1, bf16=True),
    "llama_8b_slice": Twin(1, bf16=True),
    "llama_bytes": Twin(8, bf16=True),
    "llama_toy": Twin(8, bf16=False),
    "llama_toy_untied": Twin(8, bf16=False),
    "moe_8e": Twin(2, bf16=True),
    "moe_64e": Twin(2, bf16=True),
    "moe_toy": Twin(8, bf16=False),
    "vit_l16": Twin(128, bf16=True),
    "vit_toy": Twin(8, bf16=False),
    "lstm": Twin(64, bf16=True),
    "mlp": Twin(256, bf16=True),
}


def causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Each token to those before it in its row."""
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    return nnf.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


class Block(nn.Module):
    """One layer of a GPT-2, without dropout."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_c_proj = nn.Linear(4 * width, width)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * size.layers))
            elif name.startswith("c_") and name.endswith("weight"):
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, state: torch.Tensor, attend: Attend = causal_attention) -> torch.Tensor:
        parts = self.c_attn(self.ln_1(state)).unflatten(-1, (3, self.heads, -1))
        state = state + self.c_proj(attend(*parts.unbind(-3)).flatten(-2))
        hidden = nnf.gelu(self.c_fc(self.ln_2(state)), approximate="tanh")
        return state + self.mlp_c_proj(hidden)


class Gpt(nn.Module):
    """A GPT-2 whose output layer shares the weight of the token embedding."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.wte = nn.Embedding(size.vocabulary, size.width)
        self.wpe = nn.Embedding(size.tokens, size.width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)
        self.h = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)

    def hidden(
        self,
        tokens: torch.Tensor,
        places: torch.Tensor | slice | None = None,
        attend: Attend = causal_attention,
    ) -> torch.Tensor:
        """What the output layer is given. `places` of the tokens in their rows, from 0 on."""
        state = (
            self.wte(tokens) + self.wpe.weight[slice(tokens.shape[1]) if places is None else places]
        )
        for block in self.h:
            state = block(state, attend)
        found: torch.Tensor = self.ln_f(state)
        return found

    @property
    def layers(self) -> nn.ModuleList:
        """Its blocks."""
        return self.h

    @property
    def output_weight(self) -> torch.Tensor:
        """The output layer's: vocabulary x width."""
        weight: torch.Tensor = self.wte.weight
        return weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return nnf.linear(self.hidden(tokens), self.output_weight)


class Lstm(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self, vocabulary: int = 10_000, width: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.decoder(self.lstm(self.embedding(tokens))[0])
        return logits


class Loss(nn.Module):
    """A model with its loss: mean squared error of values, mean cross entropy of classes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found = self.model(given)
        if found.shape == target.shape:
            return nnf.mse_loss(found.float(), target)
        # As the C++ arms do: by itself, autocast on CUDA leaves the softmax in the logits' 16 bits.
        logits = found.reshape(-1, found.shape[-1]).float()
        loss = nnf.cross_entropy(logits, target.reshape(-1))
        return loss + self.model.balance() if isinstance(self.model, Moe) else loss


def make_model(name: str) -> nn.Module:
    """The model of a name, on the host; weights from torch's default generator."""
    if name in GPT_SIZES:
        return Gpt(GPT_SIZES[name])
    if name in LLAMA_SIZES:
        return Llama(LLAMA_SIZES[name])
    if name in MOE_SIZES:
        return Moe(MOE_SIZES[name])
    if name in VIT_SIZES:
        return Vit(VIT_SIZES[name])
    if name == "lstm":
        return Lstm()
    if name == "mlp":
        layers = [nn.Linear(4096, 4096) for _ in range(8)]
        return nn.Sequential(
            layers[0], *(one for layer in layers[1:] for one in (nn.ReLU(), layer))
        )
    try:
        from torchvision import models
    except ModuleNotFoundError as error:
        raise Skip(
            f"the Python package {error.name} is not installed",
            f"install {error.name}, in the version that fits this torch",
        ) from error
    model: nn.Module = getattr(models, name)(
        num_classes=IMAGE_SIZES[name][1], zero_init_residual=True
    )
    return model


def make_batch(name: str, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A model's input and target, on the host; data from torch's default generator."""
    if name == "mlp":
        return torch.randn(batch, 4096), torch.randn(batch, 4096)
    if name in IMAGE_SIZES:
        pixels, classes = IMAGE_SIZES[name]
        return torch.randn(batch, 3, pixels, pixels), torch.randint(classes, (batch,))
    length, vocabulary = (128, 10_000)
    if name in TEXT_SIZES:
        length, vocabulary = TEXT_SIZES[name].tokens, TEXT_SIZES[name].vocabulary
    tokens = torch.randint(vocabulary, (batch, length + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def make_optimizer(
    name: str, parameters: list[nn.Parameter], *, fused: bool | None = True
) -> torch.optim.Optimizer:
    """By the rule of the C++ workload, in one kernel; `fused` None: as torch chooses."""
    if name in IMAGE_SIZES and name not in VIT_SIZES:
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, fused=fused)
    if name in TEXT_SIZES or name in VIT_SIZES:
        rate = 3e-3 if "toy" in name else 1e-4
        return torch.optim.AdamW(
            parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.1, fused=fused
        )
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, fused=fused)


def device_of(gpu: int | None) -> torch.device:
    """The GPU where there is one: what is measured must not depend on how torch was built."""
    if gpu is None:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Skip("torch cannot use the GPU", "install a build of torch for this CUDA driver")
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


def mark_on(device: torch.device) -> torch.cuda.Event:
    """A place in the queue of a GPU."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def leave_a_core_free() -> int:
    """For torch's threads, which stall when one that they wait for is preempted; how many."""
    threads = max(1, cores() - 1)
    torch.set_num_threads(threads)
    return threads


def set_up(device: torch.device) -> int:
    """Switches as the C++ arms have them: TF32 off, cuDNN searches. Returns the host's threads."""
    threads = leave_a_core_free()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    if device.type == "cuda":
        torch.cuda.init()
    return threads


class Training:
    """A model in training: weights, data, optimizer. Two of the same seed start alike."""

    def __init__(
        self,
        name: str,
        device: torch.device,
        seed: int,
        *,
        plain: bool = False,
        mode: str = "",
        batch: int | None = None,
    ) -> None:
        """`plain`: FP32 and contiguous, for reference. `mode`: of torch.compile; empty: eager.
        `batch` where it is not the twin's."""
        twin = TWINS[name]
        model = twin.model or name
        self.model_name = model
        torch.manual_seed(seed)
        self.device = device
        self.bf16 = twin.bf16 and not plain
        self.scaler: torch.amp.GradScaler | None = None  # with it, autocast is in FP16
        self.model = make_model(model).to(device)
        given = make_batch(model, twin.batch if batch is None else batch)
        self.input, self.target = (one.to(device) for one in given)
        if twin.channels_last and not plain:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.input = self.input.contiguous(memory_format=torch.channels_last)
        self.optimizer = make_optimizer(model, list(self.model.parameters()))
        self.loss: torch.Tensor | None = None
        self.losses: list[float] = []
        loss_of = Loss(self.model)
        self.loss_of: Any = torch.compile(loss_of, mode=mode) if mode else loss_of

    def step(self) -> None:
        """Zeroes the gradients, runs forward and backward, lets the optimizer step."""
        self.make_gradients()
        self.update()

    def make_gradients(self) -> None:
        """A step without its update."""
        self.loss = None
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.make_loss()
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        self.loss = loss.detach()

    def make_loss(self) -> torch.Tensor:
        """Of its data, in the training's precision."""
        half, low = (torch.float16, True) if self.scaler else (torch.bfloat16, self.bf16)
        with torch.autocast(self.device.type, dtype=half, enabled=low):
            loss: torch.Tensor = self.loss_of(self.input, self.target)
        return loss

    def update(self) -> None:
        """By the last gradients; with a scaler, where they are finite."""
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def record(self) -> None:
        """Keeps the loss of the last step."""
        assert self.loss is not None
        self.losses.append(float(self.loss))

    def train_until(self, steps: int) -> None:
        """Steps until so many losses are kept."""
        while len(self.losses) < steps:
            self.step()
            self.record()

    def synchronize(self) -> None:
        """Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def mark(self) -> torch.cuda.Event:
        """A place in the device's queue."""
        return mark_on(self.device)

    def step_time_s(self, steps: int = TIMED_STEPS) -> float:
        """The mean time of a step, of so many."""
        self.step()
        self.synchronize()
        start_s = monotonic()
        for _ in range(steps):
            self.step()
        self.synchronize()
        return (monotonic() - start_s) / steps


def largest_deviation(found: list[float], expected: list[float]) -> float:
    """The largest |found - expected| relative to the first expected; else not a number."""
    deviations = [abs(a - b) / abs(expected[0]) for a, b in zip(found, expected, strict=True)]
    return max(deviations) if all(map(math.isfinite, deviations)) else math.nan


def free_memory(device: torch.device) -> None:
    """Gives what nothing uses back, so that it counts in no later peak."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def memory_of_step(training: Training) -> dict[str, float]:
    """The peaks of one step, in bytes; none on the host."""
    return memory_of(training.step, training.device)


def memory_of(work: Callable[[], object], device: torch.device) -> dict[str, float]:
    """The peaks of one call, in bytes; none on the host."""
    if device.type != "cuda":
        return {}
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    allocated_bytes = torch.cuda.max_memory_allocated(device)
    return {
        "peak_allocated_bytes": float(
            allocated_bytes + bytes_of_replays(torch.cuda.memory_snapshot())
        ),
        "peak_reserved_bytes": float(torch.cuda.max_memory_reserved(device)),
    }


def bytes_of_replays(segments: list[dict[str, Any]]) -> int:
    """What CUDA graphs use while they are replayed, which the allocator does not count then: of
    the segments that are theirs (torch.cuda.memory_snapshot), what nothing else is allocated in."""
    return sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in segments
        if tuple(segment["segment_pool_id"]) != (0, 0)
    )


def recorded(
    step: Callable[[], Sequence[torch.Tensor]],
    device: torch.device,
    stream: torch.cuda.Stream | None = None,
) -> Callable[[], object]:
    """The same work, launched as one graph, where a GPU launches it. What a replay makes is where
    the recorded step left it: all that `step` returns, which is poisoned, as a graph that does
    nothing would leave it. `stream`: on which it is recorded, where that is not all the same."""
    if device.type != "cuda":
        return step
    with torch.cuda.stream(stream or torch.cuda.Stream(device)):
        for _ in range(COLD_STEPS):
            step()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        made = step()
    poison(made)
    replay: Callable[[], None] = graph.replay
    return replay


def poison(results: Sequence[torch.Tensor]) -> None:
    """Makes no number of any; of bytes those that are none in every format of 8 bits that has
    such. Packed numbers of 4 bits have scales beside them that become none."""
    for one in results:
        if one.dtype.itemsize == 1:
            one.detach().view(torch.uint8).fill_(0xFF)
        else:
            one.detach().fill_(torch.nan)


def require_compiler(device: torch.device) -> None:
    """What torch.compile needs and pip does not bring: a compiler and Python's headers."""
    variable, usual = ("CC", "gcc") if device.type == "cuda" else ("CXX", "g++")
    compiler = os.environ.get(variable, usual)
    if shutil.which(compiler) is None:
        raise Skip(
            f"torch.compile finds no compiler called {compiler}",
            f"install {usual}, or name a compiler in {variable}",
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise Skip("torch.compile does not find Python's headers", "install python3-dev")


def compile_layers(model: Gpt | Llama | Vit, mode: str | None = None) -> None:
    """Each by itself: they are alike, so that what is compiled of the first is run by all. As a
    whole a model takes as many times as long to compile."""
    for layer in model.layers:
        layer.compile(mode=mode)


def compile_body(model: Gpt | Llama | Vit) -> None:
    """All but the output layer: of GPT-2 as a whole, whose layers are so small that a busy host
    has called them one by one no faster than uncompiled ones."""
    if isinstance(model, Gpt):
        model.hidden = torch.compile(model.hidden)  # type: ignore[method-assign]
    else:
        compile_layers(model)


def use_cache_of_run(name: str, *, cold: bool) -> None:
    """torch.compile finds again what an earlier launch of this run compiled under this name, and
    nothing else; `cold`: nothing at all. It is removed with the run's folder for files, or where
    there is none with this process: another then finds what is in the user's cache."""
    folder = folder_of_run()
    if folder is None and not cold:
        return
    if folder is None:
        own = tempfile.TemporaryDirectory(prefix="gpulift-inductor-")
        atexit.register(own.cleanup)
        place = Path(own.name)
    else:
        place = folder / f"compiled-{name}"
        if cold:
            shutil.rmtree(place, ignore_errors=True)
        place.mkdir(exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(place)
    os.environ["TRITON_CACHE_DIR"] = str(place / "triton")


def folder_of_run() -> Path | None:
    """That of the run for files, in which each case has one while it is measured; None where there
    is none that code can be loaded from. Throws Skip where the one for temporary files, which then
    takes its place, is none either."""
    named = os.environ.get("GPULIFT_SCRATCH")
    if named and Path(named).parent.is_dir() and not is_noexec(Path(named).parent):
        return Path(named).parent
    if is_noexec(Path(tempfile.gettempdir())):
        raise Skip(
            "torch.compile loads what it compiled from the folder for temporary files, which is"
            " mounted noexec",
            "name another folder in TMPDIR",
        )
    return None


def is_noexec(folder: Path) -> bool:
    """Whether no code can be loaded from it."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def keep_the_compiler_quiet() -> None:
    """Its tables of candidates and its advice to its authors would be hundreds of lines."""
    from torch._inductor import config as inductor_config  # half of what torch takes to load

    inductor_config.autotune_num_choices_displayed = 0
    inductor_config.max_autotune_report_choices_stats = False
    # Candidates that do not fit the card are part of the search, and each leaves a trace.
    logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.CRITICAL)
    # So does each kernel of a library that it cannot see through, though it calls it all the same.
    logging.getLogger("torch._higher_order_ops.triton_kernel_wrap").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="torch._inductor")


def arm_on(device: torch.device, threads: int, **said: Any) -> Arm:
    """An arm whose steps a GPU's queue holds, or the host takes; `said` is what else it says."""
    said["notes"] = {"device": device.type, **said.get("notes", {})}
    if device.type == "cpu":
        said["notes"]["torch_threads"] = str(threads)
        return Arm(**said)
    return Arm(
        synchronize=lambda: torch.cuda.synchronize(device), mark=lambda: mark_on(device), **said
    )


def require_gpu_for(name: str, gpu: int | None) -> None:
    """Skips what a processor takes too long for: all but the models whose twins are in FP32."""
    if gpu is None and TWINS[name].bf16:
        raise Skip(
            f"a training step of {name} takes seconds on a processor",
            "take a smaller model, or a machine with a GPU",
        )


def require_fp8(device: torch.device) -> None:
    """Products and compiled kernels of 8-bit floats need a card that has them."""
    if device.type == "cpu":
        raise Skip("products of 8-bit floats need a GPU", "use a machine with one")
    if torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        raise Skip(
            "the GPU has no 8-bit floats",
            "use one of compute capability 8.9 or later",
        )


def tokens_of_step(name: str) -> int:
    """That a step of this language model trains on."""
    twin = TWINS[name]
    return twin.batch * TEXT_SIZES[twin.model or name].tokens


def work_of_step(name: str) -> dict[str, Any]:
    """What an arm says of a training step: operations of its products, two for each multiply-add,
    one forward and two backward but of images themselves, and what it trains on."""
    twin = TWINS[name]
    model = twin.model or name
    if model in TEXT_SIZES:
        flops, items, item = TEXT_SIZES[model].flops_of_row(), tokens_of_step(name), "token"
    elif model in VIT_SIZES:
        flops, items, item = VIT_SIZES[model].flops_of_row(), twin.batch, "image"
    else:
        products, of_first = IMAGE_PRODUCTS[model]
        flops, items, item = 2.0 * (3 * products - of_first), twin.batch, "image"
    return {"flops": twin.batch * flops, "items": items, "item": item}


def gradients_of(model: nn.Module) -> torch.Tensor:
    """Of the last backward pass, in FP32 and in one row."""
    found = (one.grad for one in model.parameters() if one.grad is not None)
    return torch.cat([one.float().reshape(-1) for one in found])


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the norm of what is expected."""
    return float((found - expected).norm() / expected.norm())


def exact_model(training: Training, kind: torch.dtype | None = None) -> Loss:
    """The plain model with its loss and the training's state: by itself in FP32, which is exact
    beside BF16, or for trainings in FP32 in FP64."""
    # A model of its own: what an arm changed in the training's is not in it.
    kind = kind or (torch.float32 if training.bf16 else torch.float64)
    with training.device:  # whose first weights, which count for nothing, a GPU makes sooner
        exact = Loss(make_model(training.model_name).to(kind))
    exact.model.load_state_dict(training.model.state_dict())
    return exact


def errors_of(
    training: Training, rows: int, notes: MutableMapping[str, str] | None = None
) -> tuple[float, float]:
    """Of a step on so many rows of tokens in the training's own precision: the distance of its
    loss, and of its gradients, from those of the exact model, relative. Changes no weight. With
    `notes`, which are the arm's, it is computed once for all arms that have the same weights and
    rows, or they say why not."""
    training.optimizer.zero_grad(set_to_none=True)
    exact = exact_step(training, rows) if notes is None else shared_step(training, rows, notes)
    with torch.autocast(training.device.type, dtype=torch.bfloat16, enabled=training.bf16):
        loss = training.loss_of(training.input[:rows], training.target[:rows])
    loss.backward()
    of_loss = abs(float(loss.detach()) / exact.losses[0] - 1)
    try:
        return of_loss, distance_to(exact.gradients, training.model)
    except DamagedError as damaged:
        assert notes is not None
        notes[NOTE] = f"an arm's own: {damaged}"
        return of_loss, distance_to(exact_step(training, rows).gradients, training.model)


def shared_step(training: Training, rows: int, notes: MutableMapping[str, str]) -> Reference:
    """exact_step(), of whichever arm computed it first."""
    batch = {"given": training.input[:rows], "target": training.target[:rows]}
    return shared_reference(
        partial(exact_step, training, rows),
        training.device,
        notes,
        source=source_of(__file__),
        of="a step of the exact model",
        model=training.model_name,
        weights=words_of(training.model.state_dict()),
        rows=words_of(batch),
        bf16=training.bf16,
    )


def exact_step(training: Training, rows: int) -> Reference:
    """The loss and the gradients of the exact model on so many rows."""
    exact = exact_model(training)
    loss = exact(training.input[:rows], training.target[:rows])
    loss.backward()
    found = [one.grad.float() for one in exact.parameters() if one.grad is not None]
    return Reference([float(loss.detach())], found)


def distance_to(exact: Iterable[torch.Tensor], model: nn.Module) -> float:
    """Of the gradients of the last backward pass, relative to the norm of the exact ones."""
    found = (one.grad for one in model.parameters() if one.grad is not None)
    apart = of_all = 0.0
    for mine, theirs in zip(found, exact, strict=True):
        apart += float((mine.float() - theirs).norm()) ** 2
        of_all += float(theirs.norm()) ** 2
    return math.sqrt(apart / of_all)


def words_of(numbers: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """What tells these from others, of numbers in any format."""
    return {name: sum_of_words(one.float()) for name, one in sorted(numbers.items())}
