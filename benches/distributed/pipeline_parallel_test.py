"""distributed/pipeline_parallel: two stages give what one rank gives, and hold what they should."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from technique_script import manifest  # noqa: E402
from testing.rank_group import Json, RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("pipeline_parallel.py")

MANIFEST = manifest(__file__)
SMALL = "technique.ON_PROCESSORS = technique.GptSize(2, 64, 4, 8, 0)\n"
STATE_BYTES = 64 * 8 * 64 * 4  # of all rows
PARAMETER_BYTES = 2 * (12 * 64**2 + 13 * 64) * 4


def hellos_of(folder: Path, arm: str, micro_batches: int, lines: str = "") -> list[Json]:
    with RankGroup(altered(folder, SCRIPT, SMALL + lines)) as group:
        said = group.hello(arm, {"micro_batches": micro_batches, "link": "gloo"})
        if not any("failed" in one for one in said):
            assert all(one["host_s"] > 0 for one in group.window(2))
    return said


@pytest.mark.parametrize(("arm", "micro_batches"), [("gpipe", 32), ("one_f_one_b", 8)])
def test_two_stages_give_what_one_rank_gives_and_say_how_long_they_wait(
    arm: str, micro_batches: int, tmp_path: Path
) -> None:
    hellos = hellos_of(tmp_path, arm, micro_batches)
    for hello in hellos:
        assert hello["check_error"] <= MANIFEST["check"]["tolerance"]
        assert hello["cost"]["items"] == 64 * 8
        assert hello["metrics"]["exchanged_bytes"] == 2 * STATE_BYTES
        assert 0 <= hello["metrics"]["waiting_share"] < 1


def test_replicas_give_what_one_rank_gives_and_exchange_their_gradients(tmp_path: Path) -> None:
    for hello in hellos_of(tmp_path, "data_parallel", 2):
        assert hello["check_error"] <= MANIFEST["check"]["tolerance"]
        assert hello["metrics"]["exchanged_bytes"] == PARAMETER_BYTES


def test_gradients_that_are_not_scaled_are_found(tmp_path: Path) -> None:
    unscaled = """
technique.SCHEDULES["gpipe"] = lambda *given, **named: technique.ScheduleGPipe(
    *given, **named, scale_grads=False
)
"""
    said = hellos_of(tmp_path, "gpipe", 2, unscaled)
    assert [one["failed"] for one in said] == ["gradients are off by 1"] * 2


def test_a_stage_that_works_with_other_weights_is_found(tmp_path: Path) -> None:
    other = """
def make_whole(part, make=technique.whole_model):
    model = make(part)
    with technique.torch.no_grad():
        model.blocks[1].c_fc.weight.mul_(1.1)
    return model

technique.whole_model = make_whole
"""
    said = hellos_of(tmp_path, "one_f_one_b", 2, other)
    assert all("off by" in one["failed"] for one in said)


LIVE = """
from gpulift_worker import Arm
live, most = [0], [0]

class Counting(technique.Stage):
    def forward(self, state):
        live[0] += 1
        most[0] = max(most[0], live[0])
        found = super().forward(state)
        found.register_hook(lambda _: live.__setitem__(0, live[0] - 1))
        return found

technique.Stage = Counting
def make(*case):
    arm = technique.make(*case)
    arm.step()
    return Arm(step=int, error=float, metrics=lambda: {"live": most[0]})
"""


@pytest.mark.parametrize(("arm", "expected"), [("gpipe", [8, 8]), ("one_f_one_b", [2, 1])])
def test_1f1b_keeps_fewer_micro_batches(arm: str, expected: list[int], tmp_path: Path) -> None:
    said = hellos_of(tmp_path, arm, 8, LIVE)
    assert [one["metrics"]["live"] for one in said] == expected


def test_weights_and_rows_are_drawn_on_the_device_that_trains(technique: ModuleType) -> None:
    device = torch.device("meta")
    group = technique.Group(0, 2, device, 1)
    case = technique.Case(technique.ON_PROCESSORS, group, 7, bf16=False)
    weights = [one for block in case.blocks() for one in block.parameters()]
    assert {one.device for one in (*weights, *case.rows())} == {device}
