"""distributed/pipeline_parallel: stages give what one process gives, in any order, and hold what
they should."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402
from testing.rank_group import Json, RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("pipeline_parallel.py")
MANIFEST = manifest(__file__)
STATE_BYTES = 32 * 64 * 4  # of a micro-batch
LAYER_PARAMETERS = 2 * 64 * (64 + 32) + 3 * 64 * 128 + 2 * 64

pipeline_parallel = load(__file__)


def hellos_of(folder: Path, arm: str, micro_batches: int, lines: str = "") -> list[Json]:
    with RankGroup(altered(folder, SCRIPT, lines)) as group:
        said = group.hello(arm, {"micro_batches": micro_batches, "link": "gloo"})
        if not any("failed" in hello for hello in said):
            assert all(window["host_s"] > 0 for window in group.window(2))
    return said


@pytest.mark.parametrize(
    ("arm", "micro_batches", "states"),
    [
        ("gpipe", 16, [1, 1]),
        ("one_f_one_b", 4, [1, 1]),
        ("interleaved", 4, [3, 3]),
        ("zero_bubble", 4, [3, 3]),
    ],
)
def test_stages_give_what_one_process_gives_and_say_how_long_they_wait(
    arm: str, micro_batches: int, states: list[int], tmp_path: Path
) -> None:
    hellos = hellos_of(tmp_path, arm, micro_batches)
    for hello, sent in zip(hellos, states, strict=True):
        assert hello["check_error"] <= hello["tolerance"] == 1e-5
        assert hello["cost"]["items"] == micro_batches * 32
        assert hello["metrics"]["exchanged_bytes"] == sent * micro_batches * STATE_BYTES
        assert 0 < hello["metrics"]["bubble_share"] < 1
        assert hello["metrics"]["step_without_exchange_s"] > 0


def test_replicas_give_what_one_process_gives_and_exchange_their_gradients(tmp_path: Path) -> None:
    for hello in hellos_of(tmp_path, "data_parallel", 4):
        assert hello["check_error"] <= hello["tolerance"]
        assert hello["metrics"]["exchanged_bytes"] == 4 * LAYER_PARAMETERS * 4


WITH_OTHERS = """
usual = technique.Schedule1F1B
technique.ORDERS["one_f_one_b"] = technique.Order(
    lambda *stages, loss_fn, **named: usual(*stages, **{**named, "loss_fn": OTHER})
)
"""


def test_another_loss_is_found(tmp_path: Path) -> None:
    doubled = WITH_OTHERS.replace("OTHER", "lambda *given: 2 * loss_fn(*given)")
    said = hellos_of(tmp_path, "one_f_one_b", 2, doubled)
    assert [hello["failed"] for hello in said] == ["the loss is off by 1"] * 2


def test_gradients_that_are_divided_twice_are_found(tmp_path: Path) -> None:
    divided = WITH_OTHERS.replace("OTHER", 'loss_fn, "scale_grads": True')
    for hello in hellos_of(tmp_path, "one_f_one_b", 2, divided):
        assert hello["check_error"] == pytest.approx(0.5)


def test_a_stage_that_begins_with_other_weights_is_found(tmp_path: Path) -> None:
    other = """
begin = technique.Part.begin
def begin_otherwise(part):
    begin(part)
    with technique.torch.no_grad():
        part.layers[-1].mlp.up_proj.weight.mul_(1.5)
technique.Part.begin = begin_otherwise
"""
    for hello in hellos_of(tmp_path, "one_f_one_b", 2, other):
        assert hello["check_error"] > MANIFEST["check"]["tolerance"] / 10


LEFT_OUT = """
whole = technique.ScheduleGPipe
class Short(whole):
    def _maybe_get_loss(self, stage, place):
        loss = super()._maybe_get_loss(stage, place)
        return loss if loss is None or place else loss * 0.0

technique.ORDERS["gpipe"] = technique.Order(Short)
"""


def test_gradients_that_lack_one_micro_batch_of_sixteen_are_found(tmp_path: Path) -> None:
    said = hellos_of(tmp_path, "gpipe", 16, LEFT_OUT)
    assert all(hello["check_error"] > MANIFEST["check"]["tolerance"] for hello in said)


LIVE = """
live, most = [0], [0]

class Counting(technique.Stage):
    def forward(self, state):
        live[0] += 1
        most[0] = max(most[0], live[0])
        output = super().forward(state)
        output.register_hook(lambda _: live.__setitem__(0, live[0] - 1))
        return output

technique.Stage = Counting
def make(*case):
    arm = technique.make(*case)
    arm.step()
    return technique.Arm(step=int, error=float, metrics=lambda: {"live": most[0]})
"""


@pytest.mark.parametrize(
    ("arm", "expected"), [("gpipe", [8, 8]), ("one_f_one_b", [2, 1]), ("interleaved", [5, 3])]
)
def test_1f1b_keeps_fewer_micro_batches(arm: str, expected: list[int], tmp_path: Path) -> None:
    said = hellos_of(tmp_path, arm, 8, LIVE)
    assert [hello["metrics"]["live"] for hello in said] == expected


def test_a_part_that_rests_holds_nothing_and_begins_anew(tmp_path: Path) -> None:
    rests = """
import gc
def make(*case):
    arm = technique.make(*case)
    part = arm.wake.__self__
    first = [each.detach().clone() for each in part.parameters]
    arm.step()
    arm.rest()
    held = sum(each.nbytes for each in part.parameters) + len(part.optimizer.state)
    held += sum(each.grad is not None for each in part.parameters)
    held += sum(isinstance(each, technique.DistributedDataParallel) for each in gc.get_objects())
    part.begin()
    same = all(map(technique.torch.equal, part.parameters, first))
    return technique.Arm(step=int, error=float, metrics=lambda: {"held": held, "same": same})
"""
    for arm in ("data_parallel", "zero_bubble"):
        for hello in hellos_of(tmp_path, arm, 2, rests):
            assert (hello["metrics"]["held"], hello["metrics"]["same"]) == (0, 1)


def test_orders_wait_as_their_papers_say() -> None:
    shares = {
        arm: [round(1 / order.bubble_share(micro_batches, 2)) for micro_batches in (4, 8)]
        for arm, order in pipeline_parallel.ORDERS.items()
    }
    assert shares == {
        "gpipe": [5, 9],
        "one_f_one_b": [5, 9],
        "interleaved": [9, 17],
        "zero_bubble": [25, 49],
        "eager_one_f_one_b": [5, 9],
    }


@pytest.mark.parametrize("arm", pipeline_parallel.ORDERS)
def test_stages_of_all_ranks_are_the_model_once(arm: str) -> None:
    order = pipeline_parallel.ORDERS[arm]
    for ranks in (2, 4):
        places = [place for rank in range(ranks) for place in order.places_of(rank, ranks)]
        assert sorted(places) == list(range(ranks * order.stages))


def test_gpipe_of_more_micro_batches_than_fit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        total_memory = 80e9

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Card)
    group = pipeline_parallel.Group(0, 2, torch.device("cuda", 0), 1)
    cases = [
        pipeline_parallel.Case(pipeline_parallel.TOY, micro_batches, group, 7)
        for micro_batches in (8, 16)
    ]
    pipeline_parallel.require_memory("gpipe", cases[0])
    pipeline_parallel.require_memory("one_f_one_b", cases[1])
    with pytest.raises(Skip, match="GPipe keeps 16 micro-batches, 138 GB"):
        pipeline_parallel.require_memory("gpipe", cases[1])


def test_weights_and_rows_are_drawn_on_the_device_that_trains(technique: ModuleType) -> None:
    device = torch.device("meta")
    group = technique.Group(0, 2, device, 1)
    case = technique.Case(technique.TOY, 2, group, 7)
    assert {each.device for each in (*case.layer(0).parameters(), *case.rows())} == {device}
