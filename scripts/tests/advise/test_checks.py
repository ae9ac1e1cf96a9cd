"""What a step of an arm is told to turn, in a training in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import checks  # noqa: E402
from gpulift_probe.saved import Saved  # noqa: E402
from torch import nn  # noqa: E402

from tests.advise import scripts, steps  # noqa: E402
from tests.advise.scripts import Training  # noqa: E402

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]


class Arm:
    """A switch that a loop asks whether it is on."""

    name = "made up"

    def __init__(self) -> None:
        self.on = False

    def flip(self) -> None:
        """From now on."""
        self.on = True

    def back(self) -> None:
        """Until now."""
        self.on = False


@pytest.fixture(autouse=True)
def _unhooked(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts.unhooked(monkeypatch)
    torch.manual_seed(1)


def checked(
    training: Training, arm: Any, loop: Callable[[Training], Iterator[Any]] = Training.batches
) -> dict[str, dict[str, Any]]:
    """The checks of a training, and what each says."""

    def course() -> Iterator[None]:
        batches = training.anchors.batches
        batches.notes = True
        yield from [None] * 4
        batches.notes, batches.playing = False, True
        optimizers = list(training.anchors.optimizers.values())
        seen = steps.seen(modules=[training.model], optimizers=optimizers)
        own = checks.Checks(training.anchors, Saved(optimizers), seen, training.said)
        yield from own.steps([arm])

    training.follow(course())
    for inputs, targets in loop(training):
        training.factor = 1.5 if arm.on and arm.name == "scales" else 1.0
        if arm.on and arm.name == "draws":
            torch.rand(1)
        training.step(inputs, targets)
    return {values["arm"]: values for values in training.said.of("check")}


def ahead(training: Training) -> Iterator[Any]:
    """Each batch is used when the next one is there already."""
    while not training.over:
        every = iter(training.loader)
        batch = next(every)
        for next_batch in every:
            yield batch
            batch = next_batch
        yield batch


def usual() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 4))


@pytest.mark.parametrize("loop", [Training.batches, ahead])
def test_the_same_step_again(loop: Any) -> None:
    told = checked(Training(usual()), Arm(), loop)
    for check in told.values():
        first, second = check["losses"]
        assert first == second
        assert (check["bits"], check["gradient"], check["why"]) == (True, 0.0, "")
        assert check["band"] == pytest.approx(1e-3)
    assert list(told) == ["as it is", "made up"]


@pytest.mark.parametrize("loop", [Training.batches, ahead])
def test_every_check_takes_the_same_batch(loop: Any) -> None:
    training, taken = Training(usual()), list[tuple[bool, float]]()
    arm = Arm()

    def watched(training: Training) -> Iterator[Any]:
        for inputs, targets in loop(training):
            taken.append((arm.on, float(inputs.sum())))
            yield inputs, targets

    checked(training, arm, watched)
    place = next(place for place, (on, _) in enumerate(taken) if on)
    # The arm's is the last check: null, rounded and exact are each two steps before.
    assert {batch for _, batch in taken[place - 8 : place + 1 : 2]} == {taken[place][1]}
    assert len({batch for _, batch in taken}) > 1


def test_an_arm_that_changes_the_work() -> None:
    arm = Arm()
    arm.name = "scales"
    told = checked(Training(usual()), arm)["scales"]
    first, second = told["losses"]
    assert second == pytest.approx(1.5 * first)
    assert told["gradient"] == pytest.approx(0.5)
    assert told["band"] < 0.5
    assert (told["bits"], told["why"]) == (False, "")


@pytest.mark.parametrize(("name", "band"), [("tf32", 1e-2), ("bf16", 0.1)])
def test_what_a_precision_may_turn(name: str, band: float) -> None:
    arm = Arm()
    arm.name = name
    told = checked(Training(usual()), arm)[name]
    assert band <= told["band"] < 2 * band


def test_other_random_numbers() -> None:
    arm = Arm()
    arm.name = "draws"
    told = checked(Training(usual()), arm)["draws"]
    assert told["gradient"] is None
    assert told["why"] == "it draws other random numbers, as for dropout"


def test_batches_of_a_generator_of_the_scripts_own() -> None:
    drawing = torch.Generator().manual_seed(1)

    def drawn(training: Training) -> Iterator[Any]:
        for inputs, targets in training.batches():
            yield torch.randn(inputs.shape, generator=drawing), targets

    told = checked(Training(usual()), Arm(), drawn)
    why = "its batches come of random numbers that cannot be put back"
    assert {(check["gradient"], check["why"]) for check in told.values()} == {(None, why)}


class Chaotic(nn.Module):  # type: ignore[misc]
    """The gradient is what rounding leaves: rows are equal, so that they have no variance."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)

    def forward(self, inputs: Any) -> Any:
        """Of the first row alone."""
        rows = self.layer(inputs[:1].expand_as(inputs))
        return self.norm(rows) + rows.detach()


def test_gradients_of_rounding_alone() -> None:
    told = checked(Training(Chaotic(), rows=28, batch=7), Arm())
    assert told["as it is"]["bits"] is True
    assert told["made up"]["gradient"] is None
    assert told["made up"]["why"] == "rounding alone turns its gradients"
    assert told["made up"]["band"] == 1e-2
    assert told["made up"]["losses"][0] == told["made up"]["losses"][1]


def test_a_loop_without_losses() -> None:
    """Gradients of somebody's own."""
    training, arm = Training(nn.Linear(4, 4)), Arm()

    def step(inputs: Any, _: Any) -> float:
        for parameter in training.model.parameters():
            parameter.grad = torch.full_like(parameter, float(inputs.mean()))
        training.optimizer.step()
        return math.nan

    vars(training)["step"] = step
    told = checked(training, arm)["made up"]
    assert (told["losses"], told["gradient"], told["bits"]) == ([], 0.0, True)
