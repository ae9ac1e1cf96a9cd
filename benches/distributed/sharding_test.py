"""distributed/sharding: whatever a rank keeps, training is the same, and what is not is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from testing.rank_group import RankGroup  # noqa: E402

SCRIPT = Path(__file__).with_name("sharding.py")
TOY: dict[str, int | str] = {"ranks": 2, "model": "llama_toy"}
TOY_BYTES = 78_144 * 12  # weights and two moments in FP32

Hellos = Callable[..., list[dict[str, Any]]]
Altered = Callable[[Path, str], Path]


@pytest.mark.parametrize(("arm", "share"), [("ddp", 1), ("zero_1", 2 / 3), ("fsdp2", 1 / 2)])
def test_says_what_it_keeps_of_the_state(hellos_of_ranks: Hellos, arm: str, share: float) -> None:
    for hello in hellos_of_ranks(SCRIPT, arm, TOY):
        assert hello["cost"]["items"] == 2 * 8 * 32
        assert hello["metrics"]["state_bytes"] == pytest.approx(share * TOY_BYTES, rel=0.01)


WRONG = {
    "gradients of own rows alone": ("ddp", "technique.Sharded.wrap = lambda *_, **__: None\n"),
    "shards of own gradients alone": (
        "fsdp2",
        """
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

def own_part(self, output_tensor, input_tensor, group, op, async_op=False):
    output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])

DefaultReduceScatter.__call__ = own_part
""",
    ),
    "a norm of own shards alone": (
        "fsdp1",
        """
from gpulift_work import sharded
from torch.nn.utils import clip_grad_norm_

sharded.LARGEST_NORM = technique.LARGEST_NORM = 0.1  # that of the toy is below 1
technique.FullyShardedDataParallel.clip_grad_norm_ = lambda self, most: clip_grad_norm_(
    self.parameters(), most
)
""",
    ),
}
UNSENT = "technique.ZeroRedundancyOptimizer._sync_params = lambda self: None\n"


@pytest.mark.parametrize("what", WRONG)
def test_wrong_gradients_are_found(what: str, altered: Altered, hellos_of_ranks: Hellos) -> None:
    arm, lines = WRONG[what]
    for hello in hellos_of_ranks(altered(SCRIPT, lines), arm, TOY):
        assert "the gradient of" in hello.get("failed", "") or hello["check_error"] > 0.2


def test_weights_that_are_not_sent_on_are_found(altered: Altered, hellos_of_ranks: Hellos) -> None:
    for hello in hellos_of_ranks(altered(SCRIPT, UNSENT), "zero_1", TOY):
        assert "update" in hello["failed"]


LIVE = """
import gc
from gpulift_work.llama import Llama
from gpulift_worker import Arm

def make(*case):
    gc.disable()
    arm = technique.make(*case)
    sharded = arm.step.__self__

    def held():
        models = [one for one in gc.get_objects() if issubclass(type(one), Llama)]
        arm.rest()
        weights = [part.untyped_storage().nbytes() for part in sharded.state()]
        arm.wake()
        assert all(weight.isfinite().all() for weight in sharded.state())
        return {"models": len(models), "bytes_at_rest": sum(weights)}

    return Arm(step=arm.step, error=arm.error, rest=arm.rest, wake=arm.wake, metrics=held)
"""


@pytest.mark.parametrize("arm", ["ddp", "zero_1", "fsdp1", "fsdp2"])
def test_memory_is_free_of_what_the_check_made_and_at_rest_of_the_state(
    altered: Altered, hellos_of_ranks: Hellos, arm: str
) -> None:
    for hello in hellos_of_ranks(altered(SCRIPT, LIVE), arm, TOY):
        assert hello["metrics"] == {"models": 1, "bytes_at_rest": 0}


def test_what_is_in_the_hosts_memory_is_not_offloaded_to_it(hellos_of_ranks: Hellos) -> None:
    for hello in hellos_of_ranks(SCRIPT, "fsdp2_offload", TOY):
        assert "anyway" in hello["skipped"]


def test_one_pair_of_ranks_has_no_other(hellos_of_ranks: Hellos) -> None:
    for hello in hellos_of_ranks(SCRIPT, "hsdp", TOY):
        assert hello["skipped"] == "2 ranks are one pair"
        assert "four GPUs" in hello["remedy"]


@pytest.mark.many_ranks
def test_pairs_of_ranks_keep_half_of_the_state_each(altered: Altered) -> None:
    many_cores = "from gpulift_work import distributed\ndistributed.cores = lambda: 8\n"
    with RankGroup(altered(SCRIPT, many_cores), ranks=4) as group:
        hellos = group.hello("hsdp", {**TOY, "ranks": 4})
    for hello in hellos:
        assert hello["check_error"] < 1e-4
        assert hello["metrics"]["state_bytes"] == pytest.approx(TOY_BYTES / 2, rel=0.01)
