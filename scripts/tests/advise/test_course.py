"""Whole courses: of replays in this process, and of scripts in processes of their own."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import course, replay  # noqa: E402
from gpulift_probe.aside import Aside  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402

from gpulift.advise.evidence import BASELINE, Failed  # noqa: E402
from tests.advise import scripts, steps  # noqa: E402
from tests.advise.scripts import PLAN, Ended, Forks, Training, training  # noqa: E402

pytestmark = pytest.mark.world

EPOCHS = 30  # of 4 steps: more than any course here takes
RAISES = 'if optimizer.param_groups[0]["foreach"]: raise ValueError("no such update")'


class Replayed(replay.Replay):  # type: ignore[misc]
    """Writes down the losses behind each beginning from the saved state."""

    def __init__(self, training: Training, **plan: Any) -> None:
        super().__init__({**PLAN, **plan}, training.anchors, training.said)
        self.losses: list[list[float]] = [[]]

    def begin(self, arm: Any) -> None:
        """See base."""
        super().begin(arm)
        self.losses.append([])


class Rates:
    """A script's own schedule, which counts its steps."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.count = optimizer, 0

    def step(self) -> None:
        """At each step."""
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.05 / self.count


def one_cycle(optimizer: Any) -> Any:
    """Which also turns the momentum, and ends."""
    return lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=60)


def by_steps(optimizer: Any) -> Any:
    """A new rate at each third step."""
    return lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.9)


@pytest.fixture(name="here")
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts.unhooked(monkeypatch)
    scripts.short(monkeypatch)
    torch.manual_seed(1)
    random.seed(1)


@pytest.mark.usefixtures("here", "unchanged")
@pytest.mark.parametrize("schedule", [Rates, one_cycle, by_steps])
def test_windows_replay_the_same_steps(schedule: Any) -> None:
    own = Training(nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.BatchNorm1d(4)))
    rates, replayed = schedule(own.optimizer), Replayed(own, only=[])
    own.follow(replayed.steps())
    for inputs, targets in own.batches():
        replayed.losses[-1].append(own.step(inputs, targets))
        rates.step()
    assert own.said.of("check")[0]["bits"] is True
    windows = own.said.of("window")
    assert [window["steps"] for window in windows] == [4] * 2
    _, warm, *others, last = replayed.losses
    assert len(set(warm)) == len(warm) == 8  # steps that learn something, with other numbers
    assert others == [warm[:5]]
    assert last[:5] == warm[:5]


@pytest.mark.usefixtures("here", "unchanged")
def test_a_training_goes_on_from_where_it_was_saved() -> None:
    own = Training(nn.Linear(4, 4))
    rates, replayed = Rates(own.optimizer), Replayed(own, only=[])
    saved: list[Any] = []

    def steps_taken() -> Iterator[None]:
        for _ in replayed.steps():
            if own.anchors.batches.playing and not saved:
                saved.append(own.model.weight.detach().clone())
            if saved and not own.anchors.batches.playing:
                saved.append(own.model.weight.detach().clone())
            yield

    own.follow(steps_taken())
    for inputs, targets in own.batches():
        own.step(inputs, targets)
        rates.step()
    assert torch.equal(saved[0], saved[1])
    assert own.optimizer.param_groups[0]["lr"] == 0.05 / rates.count
    assert len(own.said.of("live")) == 2


END = ("end", {"steps": 3, "asides": 0, "aside_s": 0.0})


class Process:
    """One that ends where a test can see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **plan: Any) -> None:
        self.said = scripts.Messages()
        monkeypatch.setattr(course.os, "_exit", self.end)
        monkeypatch.setattr(course.sys, "excepthook", course.sys.excepthook)
        monkeypatch.setattr(course, "atexit", SimpleNamespace(register=id, unregister=id))
        optimizers = {1: steps.seen().optimizers[0]}
        anchors = SimpleNamespace(steps=3, optimizers=optimizers, by_loader=False, loader=None)
        anchors.aside = Aside()
        anchors.skip_ready = lambda: None
        self.steps = course.of({"mode": "replay", **plan}, anchors, self.said)

    def end(self, code: int) -> None:
        """As os._exit."""
        raise SystemExit(code)

    def code(self) -> int:
        """That it ends with."""
        with pytest.raises(SystemExit) as ended:
            for _ in self.steps:
                pass
        assert self.said.every[0][0] == "hello"
        return int(str(ended.value.code))


@pytest.mark.parametrize("world", ["2", "two"])
def test_a_rank_without_others_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, world: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    process = Process(monkeypatch)
    assert process.code() == course.STOPPED == 75
    assert process.said.of("hello")[0]["refused"].startswith(f"WORLD_SIZE is {world}, and")
    assert process.said.every[1:] == [END]


def test_steps_that_are_never_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch, flat_s=0.0)
    assert process.code() == course.STOPPED
    why = "steps never took as long as those before, for 0 s"
    assert process.said.every[1:] == [
        ("failed", {"why": why, "arm": ""}),
        END,
    ]


def test_an_error_of_the_probe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = Process(monkeypatch)
    assert process.code() == course.FAILED == 70
    assert process.said.every[1:] == [
        ("failed", {"why": "the probe: KeyError: 'flat_s'", "arm": ""})
    ]
    assert "KeyError: 'flat_s'" in capsys.readouterr().err


@pytest.fixture(name="printed", scope="module")
def _printed() -> list[str]:
    """What the script prints without a probe."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(training(EPOCHS), "train.py", "exec"), {"__name__": "__main__"})
    return output.getvalue().splitlines()


@pytest.fixture(name="forks", scope="module")
def _forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


def require_no_failure(ended: Ended, code: int = course.STOPPED) -> None:
    assert (ended.code, ended.said.failed) == (code, ())
    assert "Traceback" not in ended.error
    assert ended.said.ended is not None


def test_replay(tmp_path: Path) -> None:
    ended = scripts.run(tmp_path, training(EPOCHS * 100, workers=1), "replay")
    require_no_failure(ended)
    said = ended.said
    assert said.facts is not None
    assert said.facts.loader is not None
    assert (said.facts.anchor, said.facts.loader.workers) == ("loader", 1)
    tried = {name for name, arm in said.arms.items() if arm.state != "not applicable"}
    assert {"foreach", "fused"} <= tried < set(said.arms)
    assert said.checks.keys() == tried | {BASELINE}
    assert said.checks[BASELINE].bits
    windows = [window.arm for window in said.windows]
    assert {name: windows.count(name) for name in windows} == dict.fromkeys(said.checks, 2)
    assert len(said.live) == 2
    assert said.ended is not None
    # Nothing ran behind the end; the first steps were the script's own.
    assert said.ended.steps == len(ended.printed)
    assert said.facts.steps_before is not None


def test_live(forks: Forks, tmp_path: Path, printed: list[str]) -> None:
    ended = forks.run(tmp_path, training(EPOCHS), "live")
    require_no_failure(ended, code=0)
    assert ended.printed == printed
    assert [window.arm for window in ended.said.windows] == [BASELINE] * 2
    assert len(ended.said.live) == 2


def test_turn(forks: Forks, tmp_path: Path, printed: list[str]) -> None:
    """A process of its own takes the same steps as this one, and tells the losses of ten."""
    ended = forks.run(tmp_path, training(EPOCHS * 100), "turn")
    require_no_failure(ended)
    said = ended.said
    assert ended.printed[:10] == [str(loss) for loss in said.losses]
    assert ended.printed == printed[: len(ended.printed)]
    assert said.ended is not None
    assert said.ended.steps == len(ended.printed)
    assert said.memory is not None
    assert said.memory.host_bytes > 0
    assert len(said.live) == 1


def test_a_turn_whose_weights_are_rounded(forks: Forks, tmp_path: Path, printed: list[str]) -> None:
    ended = forks.run(tmp_path, training(EPOCHS * 100), "turn", rounded=True)
    require_no_failure(ended)
    assert ended.said.rounded
    assert ended.printed[0] == printed[0]  # of the step behind which they are
    assert [float(loss) for loss in ended.printed[:10]] == pytest.approx(
        [float(loss) for loss in printed[:10]], rel=1e-3
    )
    assert ended.printed[:10] != printed[:10]


def test_a_script_that_ends_early(forks: Forks, tmp_path: Path) -> None:
    ended = forks.run(tmp_path, training(1), "replay")
    assert (ended.code, len(ended.printed)) == (0, 4)
    assert ended.said.hello is not None
    assert ended.said.ended is None
    assert ended.said.failed == (Failed("the script ended by itself after 4 steps"),)


def test_a_script_that_raises_in_an_arm(forks: Forks, tmp_path: Path) -> None:
    text = training(EPOCHS * 100, before=RAISES)
    ended = forks.run(tmp_path, text, "replay", only=["foreach"])
    assert ended.code == 1
    assert "Traceback (most recent call last):" in ended.error.splitlines()
    assert ended.error.splitlines()[-1] == "ValueError: no such update"
    assert ended.said.ended is None
    assert ended.said.failed == (Failed("ValueError", "foreach"),)


def test_what_is_given_back_at_exit_is(tmp_path: Path) -> None:
    """Also where a loader's processes are ended meanwhile, of which torch would raise an error."""
    lock = tmp_path / "lock"
    takes = f"lock = {str(lock)!r}; open(lock, 'x'); atexit.register(os.unlink, lock)"
    text = f"import torch\nimport atexit, os\n{takes}\n{training(EPOCHS * 100, workers=1)}"
    require_no_failure(scripts.run(tmp_path, text, "turn"))
    assert not lock.exists()
