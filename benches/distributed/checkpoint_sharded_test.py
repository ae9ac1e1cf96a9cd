"""distributed/checkpoint_sharded: what two ranks saved is restored, on two ranks and on one."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from technique_script import manifest  # noqa: E402
from testing.rank_group import Json, RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("checkpoint_sharded.py")

MANIFEST = manifest(__file__)
POINT: dict[str, int | str] = {"link": "gloo"}
TOY_BYTES = 106_240 * 12  # weights and two moments in FP32
# Wherever tests have their files passes for a disk.
ON_DISK = 'technique.disk_facts = lambda _: {"in_memory": False}\ntechnique.SAVES = 1\n'


def hellos_of(folder: Path, arm: str, lines: str = "", windows: int = 0) -> list[Json]:
    script = altered(folder, SCRIPT, ON_DISK + lines)
    with RankGroup(script, variables={"GPULIFT_SCRATCH": str(folder / "case")}) as group:
        said = group.hello(arm, POINT)
        for _ in range(windows):
            assert all(one["host_s"] > 0 for one in group.window(1))
        if windows:
            assert group.exit_codes() == [0, 0]
    return said


@pytest.mark.parametrize("arm", MANIFEST["arms"])
def test_the_state_at_the_call_is_restored_though_the_training_went_on(
    arm: str, tmp_path: Path
) -> None:
    hellos = hellos_of(tmp_path, arm, windows=2)
    for hello in hellos:
        assert hello["check_error"] == 0
        assert hello["has_before"]
        assert hello["cost"]["items"] == 2 * 5 * 8 * 32
    found = hellos[0]["metrics"]
    assert 0 < found["blocked_s"] <= found["durable_s"]
    assert TOY_BYTES < found["checkpoint_bytes"] < 1.6 * TOY_BYTES
    assert 0.5 * TOY_BYTES <= found["shard_bytes"] < 0.52 * TOY_BYTES
    folder = tmp_path / "case" / arm
    assert [one.name for one in folder.iterdir()] == ["checkpoint-1"], "of the last save alone"
    files = {one.name for one in (folder / "checkpoint-1").iterdir()}
    by_all = {".metadata", "__0_0.distcp", "__1_0.distcp"}
    assert files == ({"state.pt"} if arm == "rank0_gathers" else by_all)


SLOW_S = 1.5  # longer than all else that a window of the toy has
SLOW = f"""
import time

class Slow(technique.DcpSharded):
    def wait(self):
        time.sleep({SLOW_S})

technique.MANNERS = {{"dcp_sharded": Slow}}
"""


def test_a_window_lasts_until_the_save_is_durable(tmp_path: Path) -> None:
    script = altered(tmp_path, SCRIPT, ON_DISK + SLOW)
    with RankGroup(script, variables={"GPULIFT_SCRATCH": str(tmp_path / "case")}) as group:
        group.hello("dcp_sharded", POINT)
        assert all(told["host_s"] > SLOW_S for told in group.window(1))


WRONG = {
    "a copy that is taken too late": (
        "dcp_async",
        """
class Waiting(technique.DcpAsync):
    def __init__(self, *given):
        super().__init__(*given)
        self.state = None

    def save(self, state):
        self.state = state

    def wait(self):
        if self.state is not None:
            technique.DcpSharded.save(self, self.state)
            self.state = None

technique.MANNERS = {"dcp_async": Waiting}
""",
    ),
    "a tensor that is left out": (
        "rank0_gathers",
        """
class Forgetful(technique.RankZeroGathers):
    def save(self, state):
        super().save({name: one for name, one in state.items() if name != "model.wpe.weight"})

technique.MANNERS = {"rank0_gathers": Forgetful}
""",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_state_that_is_not_that_of_the_call_is_found(what: str, tmp_path: Path) -> None:
    arm, lines = WRONG[what]
    said = hellos_of(tmp_path, arm, lines)
    assert all(one["check_error"] > 32 * 64 for one in said)


def test_a_folder_in_memory_is_no_disk_for_any_rank(tmp_path: Path) -> None:
    in_memory = 'technique.disk_facts = lambda _: {"in_memory": True}\n'
    said = hellos_of(tmp_path, "dcp_sharded", in_memory)
    assert [one["skipped"] for one in said] == ["the scratch folder is in memory"] * 2
    assert {one["remedy"] for one in said} == {"name one on a disk: --scratch DIR"}


def test_says_how_much_space_it_needs(tmp_path: Path) -> None:
    full = f"""
from types import SimpleNamespace
technique.shutil.disk_usage = lambda _: SimpleNamespace(free={4 * TOY_BYTES})
"""
    said = hellos_of(tmp_path, "dcp_async", full)
    reason = "the disk of the scratch folder has less than 5 MB free"
    assert [one["skipped"] for one in said] == [reason] * 2
