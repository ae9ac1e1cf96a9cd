"""distributed/context_parallel: parts of a sequence give what the whole gives."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402
from testing.rank_group import Json, RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("context_parallel.py")
MANIFEST = manifest(__file__)
POINT: dict[str, int | str] = {"tokens": 256}
HEAD_BYTES = 128 * 16 * 4  # of a rank's tokens of 256

context_parallel = load(__file__)

# torch's ring calls a GPU's kernels: others in their place, by the same names, with scores in full.
ON_CPU = """
import math
torch, aten = technique.torch, technique.torch.ops.aten

def scores_of(query, key, is_causal):
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if is_causal:
        behind = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(behind, -math.inf)
    return scores

def forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *,
            scale=None):
    query, key, value = technique.repeated_keys(query, key, value)
    scores = scores_of(query, key, is_causal)
    total = scores.logsumexp(-1)
    state = torch.zeros(2, dtype=torch.uint64)
    unused = torch.zeros((), dtype=torch.uint64)
    lengths = query.shape[2], key.shape[2]
    output = (scores - total[..., None]).exp() @ value
    return output, total, None, None, *lengths, state, unused, torch.empty(0)

def backward(gradient, query, key, value, output, total, *rest, scale=None):
    shared, is_causal = query.shape[1] // key.shape[1], rest[5]
    query, key, value = technique.repeated_keys(query, key, value)
    weights = (scores_of(query, key, is_causal) - total[..., None]).exp()
    of_weights = gradient @ value.transpose(-1, -2) - (gradient * output).sum(-1, keepdim=True)
    of_scores = weights * of_weights / math.sqrt(query.shape[-1])
    of_keys = of_scores.transpose(-1, -2) @ query, weights.transpose(-1, -2) @ gradient
    return of_scores @ key, *(each.unflatten(1, (-1, shared)).sum(2) for each in of_keys)

def scaled_dot_product_attention(query, key, value, is_causal=False, enable_gqa=False):
    return aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal)[0]

LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("_scaled_dot_product_flash_attention", forward, "CPU")
LIBRARY.impl("_scaled_dot_product_flash_attention_backward", backward, "CPU")
technique.nnf.scaled_dot_product_attention = scaled_dot_product_attention
technique.DEVICES_OF_ROTATIONS = ("cpu",)
"""
COUNTED = """
import torch.distributed._functional_collectives as functional
sent = [0]

def counting(call, share):
    def counted(tensor, *rest, **named):
        sent[0] += share * tensor.nbytes
        return call(tensor, *rest, **named)
    return counted

functional.permute_tensor = counting(functional.permute_tensor, 1)
names = ("all_gather_single", "all_gather_tensor")  # from torch 2.13 on, and before
gather = next(name for name in names if hasattr(functional, name))
setattr(functional, gather, counting(getattr(functional, gather), 1))
whole_call = technique.torch.distributed.all_to_all_single
def all_to_all_single(output, sent_tensor, **named):
    sent[0] += sent_tensor.nbytes // 2
    return whole_call(output, sent_tensor, **named)
technique.torch.distributed.all_to_all_single = all_to_all_single

def make(*case):
    arm = technique.make(*case)
    sent[0] = 0
    arm.step()
    counted = sent[0]
    return technique.Arm(
        step=arm.step, error=arm.error, metrics=lambda: {**arm.metrics(), "counted": counted}
    )
"""


def hellos_of(folder: Path, arm: str, lines: str = "") -> list[Json]:
    with RankGroup(altered(folder, SCRIPT, lines)) as group:
        said = group.hello(arm, POINT)
        if not any("failed" in hello for hello in said):
            assert all(window["host_s"] > 0 for window in group.window(2))
    return said


@pytest.mark.parametrize(
    ("arm", "expected_bytes"),
    [
        ("ulysses", 2 * (2 * 4 + 2 * 2) * HEAD_BYTES // 2),
        # Keys and values of two heads each once forward and once backward, their gradients twice.
        ("ring", (1 + 1 + 2) * 2 * 2 * HEAD_BYTES),
        ("all_gather", (1 + 1 + 2) * 2 * 2 * HEAD_BYTES),
    ],
)
def test_two_parts_give_what_the_whole_gives_and_say_what_they_send(
    arm: str, expected_bytes: int, tmp_path: Path
) -> None:
    lines = (ON_CPU if arm in context_parallel.ROTATIONS else "") + COUNTED
    for hello in hellos_of(tmp_path, arm, lines):
        assert hello["check_error"] <= hello.get("tolerance", context_parallel.EXACT_TOLERANCE)
        assert hello["metrics"]["exchanged_bytes"] == hello["metrics"]["counted"] == expected_bytes


WRONG = {
    # Heads stay where they came from.
    "ulysses": "technique.all_heads = lambda tokens, ranks: tokens.unflatten(2, (ranks, -1))"
    ".transpose(1, 2).flatten(1, 2)\n",
    # As if a rank had a piece of its own from the front alone.
    "ring": ON_CPU
    + "from torch.distributed.tensor.experimental._attention import _cp_options\n"
    + "enter = technique.Ring.own\n"
    + "def own(part, tensors):\n"
    + "    parts = enter(part, tensors)\n"
    + "    _cp_options.enable_load_balance = False\n"
    + "    return parts\n"
    + "technique.Ring.own = own\n",
}


@pytest.mark.parametrize("arm", WRONG)
def test_parts_that_attend_to_others_are_found(arm: str, tmp_path: Path) -> None:
    assert all(hello["check_error"] > 0.1 for hello in hellos_of(tmp_path, arm, WRONG[arm]))


def test_both_ranks_of_a_ring_have_as_much_to_do(tmp_path: Path) -> None:
    positions = """
def make(*case):
    arm = technique.make(*case)
    part = arm.step.__self__
    return technique.Arm(
        step=int, error=float, metrics=lambda: {"scores": float((part.positions + 1).sum())}
    )
"""
    said = hellos_of(tmp_path, "ring", ON_CPU + positions)
    assert [hello["metrics"]["scores"] for hello in said] == [256 * 257 / 4] * 2


def test_heads_come_back_as_they_went(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_parallel, "exchanged", lambda parts: parts)
    heads = torch.randn(1, 6, 5, 4)
    again = context_parallel.all_heads(context_parallel.all_tokens(heads, 3), 3)
    assert torch.equal(again, heads)


def test_a_wrong_gradient_of_the_last_heads_alone_is_found() -> None:
    group = context_parallel.Group(0, 1, torch.device("cpu"), 1)
    size = context_parallel.LLAMA_SIZES["llama_toy"]
    part = context_parallel.Whole(context_parallel.Case(size, 32, group, 7))
    part.step()
    assert context_parallel.error_of(part) < context_parallel.EXACT_TOLERANCE
    part.gradients[2][:, -1] *= 1.1
    assert context_parallel.error_of(part) == pytest.approx(0.1, rel=1e-3)


def test_a_ring_needs_gpus() -> None:
    with pytest.raises(Skip, match="no kernels for processors") as skip:
        context_parallel.make("ring", POINT, 7, None)
    assert skip.value.remedy == "use GPUs"


def test_a_long_sequence_needs_gpus() -> None:
    with pytest.raises(Skip, match="a GPU each"):
        context_parallel.make("ulysses", {"tokens": 8192}, 7, None)
