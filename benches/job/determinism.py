"""job/determinism: what a training step costs that gives the same bits again."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch
from gpulift_work import repeats
from gpulift_work.first_steps import FirstSteps, allow_tf32
from gpulift_work.llama import causal_shared_attention
from gpulift_work.training import TEXT_SIZES, device_of, free_memory, require_gpu_for, set_up
from gpulift_worker import Arm, Failed, Skip, check_seed

TECHNIQUE = {
    "question": "What do torch's deterministic algorithms cost a training step, and do its bits "
    "repeat with them, and without?",
    "expectation": """
        The switch does three things. It fills what `empty` makes: casts, norms, embeddings and
        attention's gradients, while products, convolutions and passes over single values allocate
        otherwise. It takes kernels that add in one order, and refuses where there is none; neither
        model here has such an operation in torch 2.11. And attention leaves cuDNN, whose backward
        kernel torch cannot ask to repeat, for FlashAttention 2, whose blocks of keys then share
        queries' gradients in 3 parts a head (132 multiprocessors, 2 x 32 heads), so that 192 blocks
        are on 132 multiprocessors: two rounds in place of 1.45, 1.4 times as long. With warn_only
        torch only warns of attention. llama_1b, 8192 tokens, BF16: 164 ms on an H200, 180 on an
        H100. 8192 tokens of a layer take cuDNN 0.32 ms forward and 0.94 backward, FlashAttention 2
        0.49 and 1.44, which become 2.0, and 0.07 for parts: 16 layers have 21 ms more. Filled are
        25 GB: weights' casts 2.5 and their gradients' 4.9, logits in FP32 and their gradients 6.3,
        the embedding's gradient 1, layers 0.65 each; and 4 more of FlashAttention's: 6 to 7 ms at
        4.2 TB/s, 8 to 10 at 3.0. So warn is 0.96 times as fast as off, on 0.85, on without filling
        0.89, and attention alone as much, since products, the embedding's sorted sums and the loss
        repeat anyway: by cuDNN no repeat has the same bits, by attention alone all have. ResNet-50,
        256 images, BF16, channels last: 54 ms on an H200, 70 on an H100, of 16 ms of products. Off,
        cuDNN searches, as torchvision's own training has it, and by the switch not, since a search
        may choose another kernel in the next process: 1 ms. Gradients of filters, split over
        images, may lose their fastest kernels: 1 ms. Batch norms fill their outputs and gradients,
        11.4 GB: 2.7 ms on an H200, 3.8 on an H100. So on and warn are 0.92, on without filling
        0.965. Cards of one kind, given one seed, have the same `check_bits` with on. The toy on a
        processor fills a hundred small tensors, and is 0.97; nothing else changes, and all bits
        repeat.
    """,
    "predict": [
        "model:llama_1b @h200: off 155-175 ms",
        "model:llama_1b @h100: off 170-190 ms",
        "model:llama_1b @nvidia-h: warn 0.93-0.985, on 0.79-0.9, on_no_fill 0.83-0.94,"
        " attention 0.83-0.94",
        "model:resnet50_256 @h200: off 48-58 ms",
        "model:resnet50_256 @h100: off 61-77 ms",
        "model:resnet50_256 @nvidia-h: warn 0.86-0.97, on 0.86-0.97, on_no_fill 0.9-1.01",
        "model:llama_toy @cpu: warn 0.92-1.01, on 0.92-1.01, on_no_fill 0.97-1.03,"
        " attention 0.95-1.02",
    ],
    "found": (
        "Of llama_1b on an H200 no repeat has the same bits by off or warn, and all have by the "
        "three others, over launches, too: attention alone is enough. A plain program of Hugging "
        "Face's Llama, of which there is no record, had 0.87 with on."
    ),
    "whole_steps": True,
    "arms": ["off", "warn", "on", "on_no_fill", "attention"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "resnet50_256", "llama_toy"]},
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm; where all "
        "is deterministic, equal bits in each repeat of two steps and in each launch",
        "tolerance": 0.15,  # BF16: 0.044 of llama_1b; 0.07 of 32 images of ResNet-50 on a host
    },
}
DETERMINISTIC = ("warn", "on", "on_no_fill")
PROMISING = ("on", "on_no_fill")
STEPS, REPEATS = 2, 4
WORDS = 1 << 22  # that are summed at once
DIGESTS = 2**53  # of them: as many as a metric can tell apart
LACKING = re.compile(
    r"(\S.*?) (?:does not have a deterministic implementation"
    r"|defaults to a non-deterministic algorithm)"
)


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step with the arm's switches."""
    name = str(point["model"])
    if arm == "attention" and name not in TEXT_SIZES:
        raise Skip("the model has no attention", "take a language model")
    require_gpu_for(name, gpu)
    choose(arm)
    device = device_of(gpu)
    threads = set_up(device)
    allow_tf32(True)
    if arm in DETERMINISTIC:
        torch.backends.cudnn.benchmark = False
    job = Job(name, device, seed, arm)
    if lacking := job.try_step():
        job.notes[arm] = f"torch warns of {lacking}"
    return job.arm(threads, roof="" if "toy" in name else "gemm/bf16")


def choose(arm: str) -> None:
    """Its switches, as torch's page on reproducibility has them, ahead of CUDA."""
    if arm in ("on_no_fill", "attention"):
        torch.utils.deterministic.fill_uninitialized_memory = False
    if arm in DETERMINISTIC:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True, warn_only=arm == "warn")


class Job(FirstSteps):
    """A training that looks whether its bits repeat."""

    def __init__(self, name: str, device: torch.device, seed: int, arm: str) -> None:
        super().__init__(name, device, seed)
        self.promises = arm in PROMISING
        if arm == "attention":
            for layer in self.training.model.layers:
                layer.forward = partial(layer.forward, attend=deterministic_attention)

    def try_step(self) -> str:
        """What of a step is not deterministic, as far as torch warns of it. Skips the arm where
        torch refuses it."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                self.training.make_gradients()
            except RuntimeError as error:
                refused = LACKING.match(str(error))
                if refused is None:
                    raise
                reason = f"{refused[1]} has no deterministic way in this torch"
                raise Skip(reason, "take warn, or another operation") from error
        found = (LACKING.match(str(one.message)) for one in told)
        return ", ".join(sorted({one[1] for one in found if one}))

    def error(self) -> float:
        """As of any training; Failed where bits are others that are to repeat."""
        apart = super().error()
        earlier = (repeats.expected() or {}).get("check_bits")
        with self.from_seed(check_seed()):
            bits = [self.bits_of_steps() for _ in range(1 + REPEATS)]
        free_memory(self.device)  # of what sums took
        others = sum(one != bits[0] for one in bits)
        self.facts |= {
            "check_bits": float(bits[0]),
            "bits_repeat": float(not others),
            "differing_share": others / REPEATS,
        }
        if earlier is not None:
            self.facts["bits_repeat_over_launches"] = float(bits[0] == earlier)
        if self.promises and others:
            raise Failed(f"bits of {others} of {REPEATS} repeats are not those of the first time")
        if self.promises and earlier not in (None, bits[0]):
            raise Failed("bits are not those of the first launch")
        return apart

    def bits_of_steps(self) -> int:
        """A digest of losses and gradients of the first steps, from their beginning."""
        self.begin()
        found = []
        for _ in range(STEPS):
            self.training.make_gradients()
            made = [self.training.loss, *(one.grad for one in self.parameters)]
            found.append(digest_of([one for one in made if one is not None]))
            self.training.update()
        return folded(found)


def digest_of(numbers: Sequence[torch.Tensor]) -> int:
    """Of the bits of numbers in FP32, and of their places: another one where a word differs, or
    two are exchanged. The same on all devices, since integers add up to the same in any order."""
    drawn = torch.randint(2**62, (WORDS,), generator=torch.Generator().manual_seed(0))
    odd = (drawn | 1).to(numbers[0].device)  # so that no change of one word is lost
    words = (one.detach().reshape(-1).view(torch.int32) for one in numbers)
    return folded(int((one * odd[: len(one)]).sum()) for row in words for one in row.split(WORDS))


def folded(numbers: Iterable[int]) -> int:
    """Into one below DIGESTS, by their order: another one where any of them is."""
    found = 0
    for one in numbers:
        found = (0x9E3779B97F4A7C15 * found + one) % DIGESTS
    return found


def deterministic_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """As torch chooses it with the switch on, forward and backward; all else is with it off. torch
    has no switch for attention alone, and reads that of all when it launches a kernel."""
    torch.use_deterministic_algorithms(True)
    found = causal_shared_attention(query, key, value)
    torch.use_deterministic_algorithms(False)
    assert found.grad_fn is not None
    ((attention, _),) = found.grad_fn.next_functions  # behind it heads and tokens change places
    assert attention is not None
    attention.register_prehook(lambda _: torch.use_deterministic_algorithms(True))
    attention.register_hook(lambda _, __: torch.use_deterministic_algorithms(False))
    return found
