"""What arms that compare kernels share: replays of a graph, errors, and normalisations.

A graph leaves out what the host takes to launch, of which torch has more than a call of CUDA's:
kernels are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as nnf
from gpulift_worker import Arm, Skip
from torch._functorch import config as functorch_config

from gpulift_work.training import (
    arm_on,
    device_of,
    free_memory,
    keep_the_compiler_quiet,
    recorded,
    require_compiler,
    set_up,
)

Results = Sequence[torch.Tensor]

EPSILON = 1e-5  # of kernels/layer_norm.hpp
# Layers, width, words and context
GPT_SIZES = {"gpt2": (12, 768, 50304, 1024), "small": (4, 128, 512, 128)}


class Replay:
    """Work whose steps a GPU replays, and a processor does anew; `results` are the last step's."""

    def __init__(self, begin: Callable[[], Callable[[], Results]], device: torch.device) -> None:
        """`begin` makes the work, where it is recorded: a backward pass runs on the stream of its
        forward pass."""
        self.results: Results = ()
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self._work = begin()
        self.step = recorded(self._keep, device, stream)

    def _keep(self) -> Results:
        self.results = self._work()
        return self.results


def backward_of(
    results: Results, inputs: Results, gradients: Results
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """The backward pass alone, as often as it is called."""
    return lambda: torch.autograd.grad(results, inputs, gradients, retain_graph=True)


def require_kernels_of(arm: str, device: torch.device) -> None:
    """Skips an arm that this machine cannot have."""
    if arm == "liger" and device.type == "cpu":
        raise Skip("Liger's kernels need a GPU", "use a machine with one")
    if arm == "compiled":
        require_compiler(device)
        keep_the_compiler_quiet()


def sets_beyond_cache(device: torch.device, size: int) -> int:
    """How many of so many bytes it takes to cycle through three times the L2 cache of a GPU."""
    if device.type == "cpu":
        return 1
    cache_bytes: int = torch.cuda.get_device_properties(device).L2_cache_size
    return 3 * cache_bytes // size + 1


def largest_error(found: torch.Tensor, expected: torch.Tensor, floor: float) -> float:
    """Relative, or of numbers below `floor` over that, as kernels/verify.hpp has it; not a number
    if one is none."""
    error = (found.detach().double() - expected).abs() / expected.abs().clamp(min=floor)
    return float(error.max())


Norm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# Of rows, a residual, weight and bias: what is normalised, and the sum where there is a residual
AddedNorm = Callable[..., tuple[torch.Tensor, ...]]


def layer_norm(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return nnf.layer_norm(rows, weight.shape, weight, bias, EPSILON)


def rms_norm(rows: torch.Tensor, weight: torch.Tensor, _bias: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return nnf.rms_norm(rows, weight.shape, weight, EPSILON)


def written_out(rows: torch.Tensor, weight: torch.Tensor, _bias: torch.Tensor) -> torch.Tensor:
    """RMSNorm as the models of transformers have it, operation by operation."""
    exact = rows.float()
    exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + EPSILON)
    return weight * exact.to(rows.dtype)


TORCH_NORMS: dict[str, Norm] = {"layer_norm": layer_norm, "rms_norm": rms_norm}


class NormRows:
    """Rows of BF16 that are normalised, behind the addition of a residual where there is one, and
    the gradients that come back."""

    def __init__(
        self, kind: str, shape: tuple[int, int], *, residual: bool, device: torch.device
    ) -> None:
        """`kind` of TORCH_NORMS."""
        options = {"device": device, "dtype": torch.bfloat16}
        self.kind, self.device = kind, device
        self.input = torch.randn(shape, **options).requires_grad_()
        self.residual = torch.randn(shape, **options) if residual else None
        self.weight = (torch.randn(shape[1], **options) / 2).requires_grad_()
        self.bias = (torch.randn(shape[1], **options) / 2).requires_grad_()
        # Of the output, and of the sum past the normalisation
        self.gradients = [torch.randn(shape, **options) for _ in range(2 if residual else 1)]
        self._output_gradient = self.gradients[0].clone()

    def replay(self, arm: str, which: str) -> Replay:
        """The pass `which`, with what a backward pass needs kept where it is forward."""
        function = self._function(arm)
        # A compiled backward pass else writes over what the forward pass kept, and is taken once.
        functorch_config.donated_buffer = False

        def forward() -> tuple[torch.Tensor, ...]:
            return function(self.input, self.residual, self.weight, self.bias)

        def backward() -> Callable[[], Results]:
            return backward_of(forward(), self._differentiated(), self.gradients)

        return Replay(backward if which == "backward" else lambda: forward, self.device)

    def renew(self) -> None:
        """Copies the output's gradient anew, ahead of each window: Liger writes that of the rows
        over it. So trainings run it; in_place=False has its RMS norm write a matrix of zeros
        besides. Steps multiply it by the weights, and after a hundred it would overflow. Within a
        window they move the same bytes, of other numbers."""
        self.gradients[0].copy_(self._output_gradient)

    def error(self, results: Results, which: str) -> float:
        """Of all results against FP64, added, so that one that is no number stays none."""
        total = self.input.detach()
        if self.residual is not None:
            total = total + self.residual
        exact = [one.detach().double().requires_grad_() for one in (total, self.weight, self.bias)]
        output = TORCH_NORMS[self.kind](*exact)
        if which == "forward":
            expected = [output.detach()]
            if self.residual is not None:
                expected.append(total.double())
            floors = [1.0] * len(expected)
        else:
            trained = exact if self.kind == "layer_norm" else exact[:2]
            first, *others = torch.autograd.grad(output, trained, self._output_gradient.double())
            past = self.gradients[1].double() if self.residual is not None else 0.0
            expected = [first + past, *others]
            floors = [1.0, *[len(total) ** 0.5] * len(others)]
        errors = zip(results, expected, floors, strict=True)
        largest = sum(largest_error(*one) for one in errors)
        free_memory(self.device)  # other arms need it for theirs
        return largest

    def _differentiated(self) -> list[torch.Tensor]:
        return [self.input, self.weight, *([self.bias] if self.kind == "layer_norm" else [])]

    def _function(self, arm: str) -> AddedNorm:
        require_kernels_of(arm, self.device)
        if arm == "liger":
            return liger_norm(self.kind, added=self.residual is not None)
        function = behind_addition(written_out if arm == "written_out" else TORCH_NORMS[self.kind])
        if arm == "compiled":
            function = torch.compile(function, dynamic=False)
        return function


def norm_arm(
    arm: str,
    kind: str,
    which: str,
    shape: tuple[int, int],
    *,
    residual: bool,
    tolerance: float,
    gpu: int | None,
) -> Arm:
    """The pass `which` of NormRows by the arm's kernels, replayed as a graph."""
    device = device_of(gpu)
    threads = set_up(device)
    rows = NormRows(kind, shape, residual=residual, device=device)
    replay = rows.replay(arm, which)
    return arm_on(
        device,
        threads,
        step=replay.step,
        error=lambda: rows.error(replay.results, which),
        tolerance=tolerance,
        wake=rows.renew,
    )


def behind_addition(norm: Norm) -> AddedNorm:
    """The norm of the sum, and the sum; of the rows alone without a residual."""

    def added(
        rows: torch.Tensor,
        residual: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        if residual is None:
            return (norm(rows, weight, bias),)
        total = rows + residual
        return norm(total, weight, bias), total

    return added


def liger_norm(kind: str, *, added: bool) -> AddedNorm:
    """Liger's kernel; of a layer norm it has none that adds."""
    from liger_kernel.transformers import functional

    if kind == "layer_norm":
        return behind_addition(
            lambda rows, weight, bias: functional.liger_layer_norm(rows, weight, bias, EPSILON)
        )
    if not added:
        return behind_addition(
            lambda rows, weight, _bias: functional.liger_rms_norm(rows, weight, EPSILON)
        )
    return lambda rows, residual, weight, _bias: functional.liger_fused_add_rms_norm(
        rows, residual, weight, EPSILON
    )


def model_tensors(model: str) -> list[int]:
    """How many numbers each of its tensors has, as in workloads/model_tensors.hpp."""
    if model == "llama_8b_layer":
        width, of_heads, hidden = 4096, 1024, 14336
        return [width * one for one in (1, width, of_heads, of_heads, width, 1, *[hidden] * 3)]
    layers, width, words, context = GPT_SIZES[model]
    of_layer = [1, 1, 3 * width, 3, width, 1, 1, 1, 4 * width, 4, 4 * width, 1]
    return [width * one for one in (words, context, *of_layer * layers, 1, 1)]
