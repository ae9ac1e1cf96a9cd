"""distributed/nccl_settings: a step adds as often as its arm says, and a wrong sum is found."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest, points  # noqa: E402
from testing.rank_group import RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("nccl_settings.py")

nccl_settings = load(__file__)
MANIFEST = manifest(__file__)
pytestmark = pytest.mark.usefixtures("no_settings")
HAS_TWO_GPUS = torch.cuda.is_available() and torch.cuda.device_count() > 1
# Sums on processors, of which no graph can be made: the step takes the calls one by one.
ON_PROCESSORS = """
import contextlib, torch, gpulift_work.distributed as distributed

class Graph:
    def replay(self):
        sums.buffer.copy_(sums.own)
        for _ in range(sums.calls):
            sums.exchange()

    def reset(self):
        pass

class Sums(technique.Sums):
    def __init__(self, *given, **more):
        global sums
        sums = self
        super().__init__(*given, **more)

technique.Sums = Sums
technique.join = lambda link, gpu: distributed.join("gloo", gpu)
technique.mark_on = None
technique.library_versions = lambda on_gpu: {}
torch.cuda.CUDAGraph = Graph
torch.cuda.graph = lambda graph, capture_error_mode: contextlib.nullcontext()
"""


def test_sums_stay_numbers_and_a_launch_is_little_beside_a_step() -> None:
    for message_bytes in {point["bytes"] for point in points(__file__)}:
        calls = nccl_settings.calls_of(message_bytes)
        assert 4 <= calls <= 64
        assert 2.0 ** (calls - 1) * 10 < torch.finfo(torch.float32).max


@pytest.mark.parametrize(("arm", "reason"), [("mapped", "over NVLink"), ("ll128", "stay whole")])
def test_what_needs_nvlink_is_skipped_through_the_host(
    arm: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MANIFEST["environment"].get(arm, {}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Skip, match=reason):
        nccl_settings.make(arm, {"link": "host", "bytes": 65536}, 7, 0)


def test_both_ranks_say_that_they_need_a_gpu_each() -> None:
    with RankGroup(SCRIPT) as group:
        said = group.hello("default", {"link": "host", "bytes": 65536})
        assert group.exit_codes() == [0, 0]
    assert [one["skipped"] for one in said] == ["its ranks need a GPU each"] * 2


@pytest.mark.parametrize(
    ("fault", "wrong"), [("", 0), ("Sums.exchange = lambda self: self.buffer.mul_(2)", 16384)]
)
def test_a_sum_that_is_not_that_of_all_ranks_is_found(
    fault: str, wrong: int, tmp_path: Path
) -> None:
    with RankGroup(altered(tmp_path, SCRIPT, ON_PROCESSORS + fault)) as group:
        said = group.hello("default", {"link": "host", "bytes": 65536})
        assert group.exit_codes() == [0, 0]
    for one in said:
        assert one["check_error"] == wrong
        assert one["cost"]["bytes"] == one["cost"]["items"] * 65536


@pytest.mark.skipif(not HAS_TWO_GPUS, reason="there are no two GPUs")
@pytest.mark.parametrize("arm", MANIFEST["arms"])
def test_sums_are_exact_on_two_gpus(arm: str) -> None:
    with RankGroup(SCRIPT, variables=MANIFEST["environment"].get(arm, {})) as group:
        said = group.hello(arm, {"link": "nvlink", "bytes": 1048576}, on_gpus=True)
        assert group.exit_codes() == [0, 0]
    assert [one["check_error"] for one in said] == [0, 0]
    assert said[0]["notes"][f"all_reduce_{arm}"] != "not told"
