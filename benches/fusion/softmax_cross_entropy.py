"""The arms of fusion/softmax_cross_entropy in Python: the loss of logits in BF16, and its
gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as nnf
from gpulift_work.kernels import Replay, Results, largest_error, require_kernels_of
from gpulift_work.training import arm_on, device_of, free_memory, set_up
from gpulift_worker import Arm

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# In units of the last place of BF16, 1/256, to which all round the gradient. Liger rounds the loss
# as well; a log softmax of 11 in BF16 is up to 1/32 off, and so is its exponential.
TOLERANCES = {"torch": 1 / 128, "torch_bf16": 1 / 16, "compiled": 1 / 128, "liger": 1 / 64}
PIECE = 1024  # tokens that are checked at once: in FP64 all would fill the card


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A forward and a backward pass."""
    device = device_of(gpu)
    require_kernels_of(arm, device)
    threads = set_up(device)
    tokens = Tokens(int(point["tokens"]), int(point["classes"]), seed, device)
    loss = loss_of(arm)

    def work() -> Results:
        return tokens.step(loss)

    # Liger's asks the device as it runs, which no graph records.
    step = work if arm == "liger" else Replay(lambda: work, device).step
    return arm_on(device, threads, step=step, error=tokens.error, tolerance=TOLERANCES[arm])


def loss_of(arm: str) -> Loss:
    """The mean loss by the arm's kernels."""
    if arm == "torch_bf16":
        return nnf.cross_entropy
    if arm == "liger":
        from liger_kernel.transformers.functional import liger_cross_entropy

        liger: Loss = liger_cross_entropy
        return liger
    return torch.compile(widened, dynamic=False) if arm == "compiled" else widened


def widened(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """As autocast has it, and models of transformers."""
    return nnf.cross_entropy(logits.float(), target)


class Tokens:
    """Logits, and the classes that are right."""

    def __init__(self, tokens: int, classes: int, seed: int, device: torch.device) -> None:
        self._shape, self._seed, self._device = (tokens, classes), seed, device
        self.logits = self._drawn().requires_grad_()
        self.target = torch.randint(classes, (tokens,), device=device)
        self.results: Results = ()

    def step(self, loss_of_logits: Loss) -> Results:
        """The loss, and the gradient of the logits."""
        loss = loss_of_logits(self.logits, self.target)
        self.results = loss.detach(), *torch.autograd.grad(loss, self.logits)
        return self.results

    def error(self) -> float:
        """Of both results against FP64, relative, added, so that one that is no number stays none.
        Logits are drawn anew: Liger writes the gradient over them."""
        found, gradient = self.results
        tokens, classes = self._shape
        loss, errors = 0.0, []
        pieces = (one.split(PIECE) for one in (self._drawn(), self.target, gradient))
        for logits, target, of_piece in zip(*pieces, strict=True):
            logarithms = logits.double().log_softmax(-1)
            right = target[:, None]
            loss -= float(logarithms.gather(1, right).sum()) / tokens
            expected = logarithms.exp_().scatter_add_(
                1, right, torch.full_like(logarithms[:, :1], -1.0)
            )
            # What is usual is the gradient of one class of many that are as likely.
            errors.append(largest_error(of_piece, expected / tokens, 1 / tokens / classes))
        free_memory(self._device)
        return float(torch.tensor(errors).max()) + abs(float(found) / loss - 1)

    def _drawn(self) -> torch.Tensor:
        generator = torch.Generator(self._device).manual_seed(self._seed)
        options = {"device": self._device, "dtype": torch.bfloat16}
        return torch.randn(self._shape, generator=generator, **options)
