"""Models whose linear layers keep less than their weights, for Python arms: inference with what is
left, and training steps that compress the weights anew."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_worker import Failed
from torch import nn

from gpulift_work.training import Training, distance, exact_model, gradient_error

CHECKED_ROWS = 2
PRODUCT_TOLERANCE = 0.03  # more than rounding to 8 bits takes
FEW_ROWS = 256

State = dict[str, torch.Tensor]


class CompressedLinear(nn.Module):
    """A linear layer that multiplies by what is left of its weights. Subclasses say what that is,
    and how to multiply by it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.kept: Any = None  # in place of the weight, where that is not needed any more

    def compress(self, weight: torch.Tensor) -> Any:
        """What is left of it."""
        raise NotImplementedError

    def dense(self, kept: Any) -> torch.Tensor:
        """The weight that this stands for."""
        raise NotImplementedError

    def product(self, rows: torch.Tensor, kept: Any) -> torch.Tensor:
        """rows @ weight.T."""
        raise NotImplementedError

    def product_of_gradient(self, gradient: torch.Tensor, kept: Any) -> torch.Tensor:
        """gradient @ weight."""
        raise NotImplementedError

    def left(self) -> torch.Tensor:
        """The weight that its products have."""
        return self.dense(self.compress(self.weight.detach()) if self.kept is None else self.kept)

    def keep_what_is_left(self) -> None:
        """And nothing else: for inference."""
        self.kept = self.compress(self.weight.detach())
        self.weight = None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        kind = given.device.type
        if torch.is_autocast_enabled(kind):
            given = given.to(torch.get_autocast_dtype(kind))
        rows = given.flatten(0, -2)
        if self.kept is not None:
            found = self.product(rows, self.kept)
        else:
            found = CompressedProduct.apply(rows, self.weight, self)
        return (found + self.bias.to(found.dtype)).view(*given.shape[:-1], -1)


class CompressedProduct(torch.autograd.Function):
    """rows @ weight.T with what is left of the weight, all of which gets a gradient."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weight: torch.Tensor, layer: CompressedLinear
    ) -> torch.Tensor:
        """Compresses it anew."""
        ctx.save_for_backward(rows)
        ctx.layer, ctx.kept = layer, layer.compress(weight)
        return layer.product(rows, ctx.kept)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Of the rows by what is left, of the weight by a plain product."""
        (rows,) = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_weight = (gradient.T @ rows).float()
        return ctx.layer.product_of_gradient(gradient, ctx.kept), of_weight, None


def linears_of(model: nn.Module) -> dict[str, nn.Module]:
    """Linear layers of all kinds by their names; the output layer of a GPT is none."""
    kinds = (nn.Linear, CompressedLinear)
    return {name: one for name, one in model.named_modules() if isinstance(one, kinds)}


def replace_linears(model: nn.Module, kind: Callable[[nn.Module], CompressedLinear]) -> None:
    """By layers of this kind with the same weights."""
    for name, layer in linears_of(model).items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, kind(layer))


def weights_left(model: nn.Module) -> State:
    """The model's state, in which each weight is the one that its products have."""
    state: State = model.state_dict()
    for name, layer in linears_of(model).items():
        if isinstance(layer, CompressedLinear):
            state[f"{name}.weight"] = layer.left()
    return state


def work_of(task: str, training: Training) -> Callable[[], object]:
    """A `step` of training, or `inference`."""
    return training.step if task == "step" else inference_of(training)


def inference_of(training: Training) -> Callable[[], torch.Tensor]:
    """The logits of each row's last token. All is in the training's precision from now on, and
    compressed layers keep nothing but what is left; nothing can be trained any more."""
    model = training.model
    del training.optimizer  # which would keep the weights that are given up
    if training.bf16:
        model.to(torch.bfloat16)
    for layer in linears_of(model).values():
        if isinstance(layer, CompressedLinear):
            layer.keep_what_is_left()

    def logits() -> torch.Tensor:
        with torch.no_grad():
            return nnf.linear(model.hidden(training.input)[:, -1], model.output_weight)

    return logits


def error_of(training: Training, work: Callable[[], Any], state: State) -> float:
    """Of the gradients of a step or the logits of an inference, against this state in more bits;
    or of the products of a whole batch, since gradients are checked on fewer rows."""
    products = products_error(training)
    if work == training.step:
        return max(products, gradient_error(training, CHECKED_ROWS, state))
    exact = exact_model(training, state).model
    with torch.no_grad():
        expected = exact(training.input[:CHECKED_ROWS])[:, -1]
    return max(products, distance(work()[:CHECKED_ROWS], expected))


def products_error(training: Training) -> float:
    """The largest distance of a compressed layer's product of what it is given in a forward pass
    from that of its dense weight; 0 without such layers. Throws Failed where products are wrong."""
    errors = [0.0]
    kind = torch.bfloat16 if training.bf16 else torch.float32

    def look(name: str, layer: CompressedLinear, given: torch.Tensor) -> None:
        rows = given.to(kind).flatten(0, -2)
        weight = layer.left().to(kind)
        kept = layer.compress(layer.weight) if layer.kept is None else layer.kept
        errors.append(distance(layer.product(rows, kept), rows @ weight.T))
        require_right(errors[-1], name, layer, kept, rows, weight)

    hooks = [
        layer.register_forward_pre_hook(lambda layer, given, name=name: look(name, layer, *given))
        for name, layer in linears_of(training.model).items()
        if isinstance(layer, CompressedLinear)
    ]
    with (
        torch.no_grad(),
        torch.autocast(training.device.type, dtype=torch.bfloat16, enabled=training.bf16),
    ):
        training.model.hidden(training.input)
    for hook in hooks:
        hook.remove()
    return max(errors)


def require_right(
    error: float,
    name: str,
    layer: CompressedLinear,
    kept: Any,
    rows: torch.Tensor,
    weight: torch.Tensor,
) -> None:
    """Throws Failed where the product of these rows is not; says whether that of few rows is."""
    if error <= PRODUCT_TOLERANCE:
        return
    few = rows[:FEW_ROWS]
    of_few = distance(layer.product(few, kept), few @ weight.T)
    outputs, inputs = weight.shape
    raise Failed(
        f"{name}: products of {len(rows)} rows and weights of {outputs} x {inputs} are "
        f"{error:.2g} off, of {len(few)} rows {of_few:.2g}"
    )
