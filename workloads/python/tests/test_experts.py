"""Networks of which tokens take some are those of another implementation, in both forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import experts, training  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

SIZE = experts.MOE_SIZES["moe_toy"]


def transformers_model(sizes: Callable[[Any], dict[str, Any]]) -> Any:
    """The same, in FP64, with weights that make the choice matter."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        **sizes(SIZE),
        num_local_experts=SIZE.experts,
        num_experts_per_tok=SIZE.chosen,
        sliding_window=None,
    )
    config._experts_implementation = "eager"
    return transformers.MixtralForCausalLM(config).double()


def other_name(name: str) -> str:
    return "model." + name.replace("mlp.gate_up", "mlp.experts.gate_up").replace(
        "mlp.down", "mlp.experts.down"
    )


def loss_of_other(other: Any) -> Any:
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    def loss(tokens: Any, target: Any) -> Any:
        found = other(input_ids=tokens, output_router_logits=True)
        balance = load_balancing_loss_func(found.router_logits, SIZE.experts, SIZE.chosen)
        cross_entropy = training.Loss(lambda _: found.logits)(tokens, target)
        return cross_entropy + experts.BALANCE_SHARE * balance

    return loss


def test_loss_and_gradients_are_those_of_transformers(
    sizes: Callable[[Any], dict[str, Any]],
) -> None:
    torch.manual_seed(3)
    other = transformers_model(sizes)
    mine = experts.Moe(SIZE).double()
    theirs = dict(other.named_parameters())
    mine.load_state_dict(
        {name: theirs[other_name(name)].detach() for name, _ in mine.named_parameters()}
    )
    batch = training.make_batch("moe_toy", 3)
    losses = [training.Loss(mine)(*batch), loss_of_other(other)(*batch)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    for name, parameter in mine.named_parameters():
        assert training.distance(parameter.grad, theirs[other_name(name)].grad) < 1e-4, name


def test_tokens_in_groups_are_worked_on_as_one_by_one() -> None:
    torch.manual_seed(3)
    tokens = torch.randn(48, 64, dtype=torch.bfloat16)
    chosen = torch.randint(1, 4, (48, 2))  # one network has none
    shares = torch.rand(48, 2).bfloat16()
    weights = [
        (0.1 * torch.randn(4, *shape)).bfloat16().requires_grad_()
        for shape in ((256, 64), (64, 128))
    ]
    found = []
    for work in (experts.one_by_one, experts.grouped):
        output = work(tokens, chosen, shares, *weights)
        found.append([output.detach(), *torch.autograd.grad(output.square().sum(), weights)])
    for one, other in zip(*found, strict=True):
        assert training.distance(one.float(), other.float()) < 0.02


@pytest.mark.parametrize(("name", "count"), [("moe_8e", 1_760_200_704), ("moe_64e", 1_761_118_208)])
def test_large_ones_have_the_parameters_that_they_say(name: str, count: int) -> None:
    size = experts.MOE_SIZES[name]
    with torch.device("meta"):
        model = experts.Moe(size)
    assert sum(one.numel() for one in model.parameters()) == size.parameters == count


def test_work_is_what_torch_counts_but_for_masked_attention() -> None:
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        training.Loss(experts.Moe(SIZE))(*training.make_batch("moe_toy", 1)).backward()
    masked = 6 * SIZE.layers * SIZE.width * SIZE.tokens**2
    assert counter.get_total_flops() == SIZE.flops_of_row() + masked
