"""The Llama is that of another implementation, and its work is what torch counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import llama, training  # noqa: E402
from gpulift_work.losses import LossOfHidden  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

SIZE = llama.LLAMA_SIZES["llama_toy"]


def transformers_model(sizes: Callable[[Any], dict[str, Any]]) -> Any:
    """The same, in FP64, with weights that make attention and positions matter."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**sizes(SIZE))
    return transformers.LlamaForCausalLM(config).double()


def test_loss_and_gradients_are_those_of_transformers(
    sizes: Callable[[Any], dict[str, Any]],
) -> None:
    torch.manual_seed(3)
    other = transformers_model(sizes)
    mine = llama.Llama(SIZE).double()
    names = {name: f"model.{name}" for name, _ in mine.named_parameters()}
    theirs = dict(other.named_parameters())
    mine.load_state_dict({name: theirs[names[name]].detach() for name in names})
    tokens, target = training.make_batch("llama_toy", 3)
    loss = training.Loss(mine)(tokens, target)
    loss.backward()
    expected = training.Loss(lambda given: other(input_ids=given).logits)(tokens, target)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in mine.named_parameters():
        assert training.distance(parameter.grad, theirs[names[name]].grad) < 1e-4, name


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama_1b", 1_235_814_400),
        ("llama_1b_untied", 1_498_482_688),
        ("llama_3b", 3_212_749_824),
        ("llama_8b_slice", 938_119_168),
    ],
)
def test_the_large_ones_have_the_parameters_that_they_say(name: str, parameters: int) -> None:
    size = llama.LLAMA_SIZES[name]
    with torch.device("meta"):
        model = llama.Llama(size)
    assert sum(one.numel() for one in model.parameters()) == size.parameters == parameters


def test_work_is_what_torch_counts_but_for_masked_attention() -> None:
    # Of its fused attention on a processor torch counts nothing.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        training.Loss(llama.Llama(SIZE))(*training.make_batch("llama_toy", 1)).backward()
    masked = 6 * SIZE.layers * SIZE.width * SIZE.tokens**2
    assert counter.get_total_flops() == SIZE.flops_of_row() + masked


def test_under_autocast_products_are_in_its_type_and_sums_are_not() -> None:
    model = llama.Llama(SIZE)
    kinds = []
    for layer in model.layers:
        layer.self_attn.register_forward_pre_hook(lambda _, given: kinds.append(given[0].dtype))
        layer.register_forward_hook(lambda _, given, state: kinds.append(state.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        model(training.make_batch("llama_toy", 1)[0])
    assert kinds == [torch.bfloat16, torch.float32] * SIZE.layers


def test_a_loss_of_hidden_states_is_that_of_logits() -> None:
    model = llama.Llama(SIZE)
    batch = training.make_batch("llama_toy", 2)
    of_hidden = LossOfHidden(
        model,
        lambda state, weight, target: torch.nn.functional.cross_entropy(state @ weight.T, target),
    )
    assert of_hidden(*batch).item() == pytest.approx(training.Loss(model)(*batch).item(), rel=1e-6)
