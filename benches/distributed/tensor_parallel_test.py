"""distributed/tensor_parallel: parts of a model give what the whole gives, with few exchanges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.llama import LLAMA_SIZES  # noqa: E402
from gpulift_worker import Failed, Skip  # noqa: E402
from technique_script import load  # noqa: E402

SCRIPT = Path(__file__).with_name("tensor_parallel.py")
POINT: dict[str, int | str] = {"link": "gloo"}
TOY_BYTES = 78_144 * 12  # weights and two moments in FP32

Hellos = Callable[..., list[dict[str, Any]]]
Altered = Callable[[Path, str], Path]

tensor_parallel = load(__file__)


@pytest.mark.parametrize("arm", ["fsdp2", "tp2"])
def test_either_way_ranks_share_the_batch_and_the_state(arm: str, hellos_of_ranks: Hellos) -> None:
    for hello in hellos_of_ranks(SCRIPT, arm, POINT):
        assert hello["cost"]["items"] == 2 * 8 * 32
        assert hello["metrics"]["state_bytes"] == pytest.approx(TOY_BYTES / 2, rel=0.01)


# That of the toy is 0.6.
CLIPPED = """
from gpulift_work import sharded
sharded.LARGEST_NORM = 0.1
"""


@pytest.mark.parametrize("arm", ["fsdp2", "tp2"])
def test_all_gradients_are_clipped(arm: str, altered: Altered, hellos_of_ranks: Hellos) -> None:
    for hello in hellos_of_ranks(altered(SCRIPT, CLIPPED), arm, POINT):
        assert hello["check_error"] < 1e-4


WRONG = {
    # As if all that a rank needs for the sum were its own part.
    "parts of products that are not summed": """
from torch.distributed.tensor.parallel import RowwiseParallel

class Own(RowwiseParallel):
    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, module, outputs, mesh):
        return outputs.to_local().chunk(2, dim=1)[mesh.get_rank()]

embedding = RowwiseParallel
technique.RowwiseParallel = lambda **layouts: (embedding if len(layouts) > 1 else Own)(**layouts)
""",
    "gradients of norms of own tokens alone": """
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import SequenceParallel

class Own(SequenceParallel):
    def _replicate_module_fn(self, name, module, mesh):
        super()._replicate_module_fn(name, module, mesh)
        module.weight.register_hook(
            lambda gradient: DTensor.from_local(gradient.to_local(), mesh, run_check=False)
        )

technique.SequenceParallel = Own
""",
}


@pytest.mark.parametrize("what", WRONG)
def test_ranks_that_do_not_exchange_are_found(
    what: str, altered: Altered, hellos_of_ranks: Hellos
) -> None:
    for hello in hellos_of_ranks(altered(SCRIPT, WRONG[what]), "tp2", POINT):
        assert "the gradient of" in hello["failed"]


COUNTED = """
from gpulift_worker import Arm
from torch.distributed.tensor.debug import CommDebugMode

def make(*case):
    arm = technique.make(*case)
    with CommDebugMode() as seen:
        arm.step()
    calls = {str(call).rpartition(".")[2]: times for call, times in seen.get_comm_counts().items()}
    return Arm(step=int, error=float, metrics=lambda: calls)
"""


def test_a_layer_exchanges_its_activations_four_times_in_either_pass(
    altered: Altered, hellos_of_ranks: Hellos
) -> None:
    layers = LLAMA_SIZES["llama_toy"].layers
    calls = hellos_of_ranks(altered(SCRIPT, COUNTED), "tp2", POINT)[0]["metrics"]
    # Of the embedding and the output layer one in either pass.
    assert calls["all_gather_into_tensor"] == calls["reduce_scatter_tensor"] == 4 * layers + 2


@pytest.mark.parametrize("link", ["host", "gloo"])
def test_what_reads_the_other_gpus_memory_needs_nvlink(link: str) -> None:
    with pytest.raises(Skip, match="by NVLink alone"):
        tensor_parallel.make("tp2_async", {"link": link}, 7, None)


def test_a_link_of_gpus_needs_gpus() -> None:
    with pytest.raises(Skip, match="a GPU each"):
        tensor_parallel.make("tp2", {"link": "nvlink"}, 7, None)


def test_a_step_that_the_compiler_fused_nothing_of_failed() -> None:
    made = tensor_parallel.Arm(step=int, error=float)
    with pytest.raises(Failed, match="fused no product"):
        tensor_parallel.error_of_fused(made)
