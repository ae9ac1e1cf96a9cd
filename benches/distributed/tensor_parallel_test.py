"""distributed/tensor_parallel: parts of a model give what the whole gives, with few exchanges."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402
from testing.rank_group import RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("tensor_parallel.py")

MANIFEST = manifest(__file__)
POINT: dict[str, int | str] = {"hidden": 1024, "link": "gloo"}
SMALL = "technique.ON_PROCESSORS = {1024: technique.Size(256, 2, 2, 16)}\n"
MEGABYTE = 2 * (12 * 256**2 + 13 * 256) * 4  # weights of two blocks in FP32, and their biases


tensor_parallel = load(__file__)


@pytest.mark.parametrize("arm", MANIFEST["arms"])
def test_two_ranks_give_what_one_gives_and_say_what_it_costs(arm: str, tmp_path: Path) -> None:
    with RankGroup(altered(tmp_path, SCRIPT, SMALL)) as group:
        hellos = group.hello(arm, POINT)
        windows = group.window(2)
        assert group.exit_codes() == [0, 0]
    for hello, window in zip(hellos, windows, strict=True):
        assert hello["check_error"] <= MANIFEST["check"]["tolerance"]
        assert hello["cost"]["items"] == 2 * 16
        assert window["host_s"] > 0
    found = hellos[0]["metrics"]
    assert found["exposed_communication_s"] + found["step_without_exchange_s"] > 0
    if arm == "data_parallel":
        assert found["exchanged_bytes"] == found["parameter_bytes"] == MEGABYTE
    else:
        assert found["exchanged_bytes"] == 2 * 4 * (2 * 16 * 256 * 4)
        assert 0.5 * MEGABYTE < found["parameter_bytes"] < 0.51 * MEGABYTE


WRONG = {
    "data_parallel": "technique.DistributedDataParallel = lambda model, **_: model\n",
    # As if all that a rank needs for the sum were its own part.
    "tp2": "technique.RowwiseParallel = lambda output_layouts: Own()\n",
}
OWN = """
from torch.distributed.tensor.parallel import RowwiseParallel

class Own(RowwiseParallel):
    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, module, outputs, mesh):
        return outputs.to_local()
"""


@pytest.mark.parametrize("arm", WRONG)
def test_ranks_that_do_not_exchange_are_found(arm: str, tmp_path: Path) -> None:
    with RankGroup(altered(tmp_path, SCRIPT, SMALL + OWN + WRONG[arm])) as group:
        said = group.hello(arm, POINT)
    assert all("off by" in hello["failed"] for hello in said)


COUNTED = """
from gpulift_worker import Arm
from torch.distributed.tensor.debug import CommDebugMode
def make(arm, point, seed, gpu):
    group = technique.join("gloo", None)
    size = technique.ON_PROCESSORS[1024]
    shared = technique.Shared(arm, size, group, seed, technique.torch.float32)
    with CommDebugMode() as seen:
        shared.step()
    calls = {str(call).rpartition(".")[2]: times for call, times in seen.get_comm_counts().items()}
    return Arm(step=int, error=float, metrics=lambda: calls)
"""


@pytest.mark.parametrize(
    ("arm", "expected"),
    [
        ("tp2", {"all_reduce": 8}),
        # One more gathers the output; the gradients of norms and biases are summed, too.
        ("tp2_sequence", {"all_gather_into_tensor": 9, "reduce_scatter_tensor": 8}),
    ],
)
def test_a_block_exchanges_its_activations_four_times(
    arm: str, expected: dict[str, float], tmp_path: Path
) -> None:
    with RankGroup(altered(tmp_path, SCRIPT, SMALL + COUNTED)) as group:
        found = group.hello(arm, POINT)[0]["metrics"]
    assert {name: found[name] for name in expected} == expected
    assert set(found) <= {*expected, "all_reduce"}


def test_hidden_8192_needs_gpus() -> None:
    with pytest.raises(Skip, match="hidden 8192 takes minutes") as skip:
        tensor_parallel.make("tp2", {"hidden": 8192, "link": "gloo"}, 7, None)
    assert skip.value.remedy == "use GPUs"


def test_a_link_of_gpus_needs_gpus() -> None:
    with pytest.raises(Skip, match="a GPU each"):
        tensor_parallel.make("tp2", {"hidden": 1024, "link": "nvlink"}, 7, None)


def test_every_hidden_of_the_sweep_has_a_model_of_whole_heads_for_each_rank() -> None:
    assert list(tensor_parallel.ON_GPUS) == MANIFEST_SWEEP
    for size in (*tensor_parallel.ON_GPUS.values(), *tensor_parallel.ON_PROCESSORS.values()):
        assert size.hidden % (2 * tensor_parallel.HEAD_WIDTH) == 0
        assert size.rows % 2 == size.tokens % 2 == 0


MANIFEST_SWEEP = sorted({case["point"]["hidden"] for case in MANIFEST["cases"]})
