"""sparsity/pruning: two of each four weights of an MLP left out, by torchao."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as nnf
from gpulift_work.llama import LLAMA_SIZES, SwiGlu
from gpulift_work.training import (
    arm_on,
    device_of,
    distance,
    free_memory,
    keep_the_compiler_quiet,
    memory_of,
    recorded,
    require_compiler,
    set_up,
)
from gpulift_worker import Arm, Skip
from torch import nn
from torch.nn.utils import prune
from torchao.sparsity import apply_fake_sparsity, semi_sparse_weight, sparsify_
from torchao.sparsity.training import SemiSparseLinear, swap_linear_with_semi_sparse_linear
from torchao.sparsity.training.autograd import semi_structured_sparsify
from torchao.utils import get_model_size_in_bytes

TECHNIQUE = {
    "question": "What does leaving out two of each four weights save in an MLP?",
    "expectation": """
        The SwiGLU of a Llama's layer on 4096 tokens is three products of 2 x 4096 x width x inner:
        0.41, 1.4 and 5.8 TFLOP of models of 1, 8 and 70 billion weights, on an H100 at 670 TFLOP/s
        0.62, 2.15 and 8.6 ms in BF16, and a pass between them of 0.07, 0.12 and 0.23 ms. Two of
        four, Tensor Cores skip zeros at twice the peak, but inputs are fetched as before: products
        are 1.2 to 1.5 times as fast, without a search for the best kernel, which torchao does not
        make; with the pass 1.25, 1.3 and 1.33. Weights take 9/16 of their bytes, which is
        little beside activations of the smallest. Zeros anywhere are multiplied like all else, and
        save power at most: 1.0. A step prunes and packs weights and their transposes anew, and
        products forward and of the input's gradient are sparse, those of the weight's gradient are
        not: 1.2 on an A100. torch packs them as Ampere reads them: on Hopper products are wrong,
        so that none is timed there.
    """,
    "predict": [
        "mlp:2048x8192/task:inference @h100: dense 580-800 us, unstructured 0.97-1.06,"
        " two_four 1.02-1.42",
        "mlp:4096x14336/task:inference @h100: dense 2-2.6 ms, unstructured 0.97-1.06,"
        " two_four 1.08-1.5",
        "mlp:8192x28672/task:inference @h100: dense 8.2-10.2 ms, unstructured 0.97-1.06,"
        " two_four 1.1-1.5",
        "task:step @a100: two_four 1.05-1.35",
    ],
    "claims": ["pruning-faster"],
    "gpus": 1,
    "arms": ["dense", "unstructured", "two_four"],
    "controls": ["unstructured"],
    "l2": "cold",
    "page_cache": "none",
    # Width x inner of Llamas of 1, 8 and 70 billion weights
    "sweep": {
        "mlp": ["2048x8192", "4096x14336", "8192x28672"],
        "task": ["inference", "step"],
    },
    "check": {
        "meaning": "distance of the output, and in a step of all gradients, from FP32 of the"
        " weights that are left; the largest",
        "tolerance": 0.01,  # BF16: 0.0043
    },
}
TOKENS = 4096
TOLERANCE = 0.01  # of products alone, too
PROBE = 256  # inputs, outputs and rows of one
PROTOTYPE = "The PyTorch API of SparseSemiStructuredTensor is in prototype stage"


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """An MLP's inference or its forward and backward pass, compiled, in one graph."""
    device, task = device_of(gpu), str(point["task"])
    if arm == "two_four":
        require_sparse_products(device)
        warnings.filterwarnings("ignore", message=PROTOTYPE)
        if task == "step":
            require_right_packing(device)
    require_compiler(device)
    keep_the_compiler_quiet()
    threads = set_up(device)
    width, inner = map(int, str(point["mlp"]).split("x"))
    mlp = Mlp(arm, task, TOKENS, width, inner, device)
    free_memory(device)
    step = recorded(mlp.step, device)

    def metrics() -> dict[str, float]:
        return {**memory_of(step, device), "weights_bytes": mlp.weights_bytes}

    return arm_on(
        device,
        threads,
        step=step,
        error=mlp.error,
        metrics=metrics,
        flops=(1 if task == "inference" else 3) * 6 * TOKENS * width * inner,
        roof="" if arm == "two_four" else "gemm/bf16",
        items=TOKENS,
        item="token",
    )


def require_sparse_products(device: torch.device) -> None:
    """Throws Skip where there are none."""
    if device.type == "cpu":
        raise Skip("a processor has no products of weights of which two in four are left")
    if not torch.backends.cusparselt.is_available():
        raise Skip("torch has no cuSPARSELt", "install a build of torch that has it")


def require_right_packing(device: torch.device) -> None:
    """Throws Skip where products of weights that are packed in each step are wrong."""
    weight, rows = torch.randn(2, PROBE, PROBE, device=device).bfloat16()
    exact = rows.float() @ two_of_four(weight).float().T
    found = nnf.linear(rows, semi_structured_sparsify(weight, backend="cusparselt"))
    off = distance(found, exact)
    if not off <= TOLERANCE:  # not a number, too
        raise Skip(
            "torch packs weights that change as Ampere reads them, and products are"
            f" {off:.2g} off on this GPU",
            "use one of compute capability 8",
        )


class Mlp:
    """The SwiGLU of a Llama's layer, and what the layers around it give."""

    def __init__(
        self, arm: str, task: str, tokens: int, width: int, inner: int, device: torch.device
    ) -> None:
        options = {"device": device, "dtype": torch.bfloat16}
        with device:
            model = SwiGlu(replace(LLAMA_SIZES["llama_1b"], width=width, inner=inner)).bfloat16()
        for linear in model.children():
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
        self.steps = task == "step"
        self.input = torch.randn(tokens, width, **options).requires_grad_(self.steps)
        self.output_gradient = torch.randn(tokens, width, **options)
        if arm == "unstructured":
            prune_anywhere(model)
        if arm == "two_four" and not self.steps:
            apply_fake_sparsity(model)
        self.expected = self.exact_results(model, two_four=arm == "two_four" and self.steps)
        if arm == "two_four":
            with device:
                pack(model, each_step=self.steps)
        self.weights_bytes = float(get_model_size_in_bytes(model))
        self.model = model.requires_grad_(self.steps)
        self.run = torch.compile(model)
        self.output = torch.full_like(self.input, torch.nan).detach()

    def step(self) -> list[torch.Tensor]:
        """The output; in a training step with new gradients."""
        if not self.steps:
            with torch.no_grad():
                self.output = self.run(self.input)
            return self.results()
        self.input.grad = None
        self.model.zero_grad(set_to_none=True)
        output = self.run(self.input)
        output.backward(self.output_gradient)
        self.output = output.detach()
        return self.results()

    def results(self) -> list[torch.Tensor]:
        """Of the last step: its output, and the gradients it made."""
        made = [self.input.grad, *(weight.grad for weight in self.model.parameters())]
        return [self.output, *(one for one in made if one is not None)]

    def exact_results(self, model: nn.Module, *, two_four: bool) -> list[torch.Tensor]:
        """In FP32, kept in BF16: of these weights, or of what each step leaves of them."""
        exact = copy.deepcopy(model).float()
        if two_four:
            for linear, dense in zip(exact.children(), model.children(), strict=True):
                linear.weight.data = two_of_four(dense.weight.detach()).float()
        given = self.input.detach().float().requires_grad_()
        output = exact(given)
        output.backward(self.output_gradient.float())
        gradients = [given.grad, *(weight.grad for weight in exact.parameters())]
        return [output.detach().bfloat16(), *(one.bfloat16() for one in gradients if self.steps)]

    def error(self) -> float:
        """The largest distance; not a number if one is none."""
        pairs = zip(self.results(), self.expected, strict=True)
        return float(torch.tensor([distance(one.float(), far.float()) for one, far in pairs]).max())


def prune_anywhere(model: nn.Module) -> None:
    """The smaller half of each layer's weights is zero."""
    for linear in model.children():
        prune.l1_unstructured(linear, "weight", amount=0.5)
        prune.remove(linear, "weight")


def pack(model: nn.Module, *, each_step: bool) -> None:
    """Its weights, of which two in four are zero; or layers that prune and pack theirs anew."""
    if each_step:
        names = [name for name, _ in model.named_children()]
        swap_linear_with_semi_sparse_linear(model, dict.fromkeys(names, SemiSparseLinear))
    else:
        sparsify_(model, semi_sparse_weight())


def two_of_four(weight: torch.Tensor) -> torch.Tensor:
    """The weight, in whose every row and column two in four or more are zero, as in a step. By the
    mask and not by what is packed, whose products are checked against it."""
    *_, mask = torch._sparse_semi_structured_tile(weight)
    return torch._sparse_semi_structured_apply_dense(weight, mask)
