"""Windows of made-up arms, on a clock that a test sets."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import windows  # noqa: E402
from gpulift_probe.aside import Aside  # noqa: E402

from tests.advise import scripts, steps  # noqa: E402

pytestmark = pytest.mark.world

STEP_S = 0.1


class Arm:
    """A switch that writes down when it is flipped."""

    def __init__(self, name: str, log: list[str], **changes: Any) -> None:
        self.name, self.label, self.log = name, name, log
        self.keeps, self.told, self.times = "bits", ("tried", ""), 1.0
        vars(self).update(changes)

    def state(self, _: Any) -> tuple[str, str]:
        """As the test has it."""
        return self.told

    def flip(self) -> None:
        """From here on."""
        self.log.append(f"+{self.name}")

    def back(self) -> None:
        """To here."""
        self.log.append(f"-{self.name}")


class Windowed(windows.Windows):  # type: ignore[misc]
    """Windows whose steps take as long as their arms have it."""

    def __init__(self, clock: SimpleNamespace, **plan: Any) -> None:
        self.told_messages = scripts.Messages()
        self.clock, self.log = clock, list[str]()
        made = SimpleNamespace(waited_s=0.0, own_s=0.0, aside=Aside())
        super().__init__({"windows_s": 0.0, **plan}, made, self.told_messages)
        self.seen, self.step_s = steps.seen(), STEP_S

    @property
    def on_cuda(self) -> bool:
        """There is nothing to wait for."""
        return False

    def take(self, arms: Sequence[Arm]) -> list[dict[str, Any]]:
        """All windows; what was said of them."""
        times = {arm.name: arm.times for arm in arms}
        for _ in self.windows(arms):
            self.log.append(self.current())
            self.clock.now_s += STEP_S * times.get(self.current(), 1.0)
        return self.told_messages.of("window")


def test_order(clock: SimpleNamespace) -> None:
    own = Windowed(clock, windows_s=2 * 36 * STEP_S)
    told = own.take([Arm("a", own.log), Arm("b", own.log)])
    order = [[one["arm"] for one in told if one["block"] == block] for block in (0, 1)]
    assert order[0] == ["as it is", "a", "b", "b", "a", "as it is"]
    assert order[1] == ["a", "b", "as it is", "as it is", "b", "a"]
    assert [one["place"] for one in told] == [*range(6), *range(6)]


def test_an_arm_is_flipped_for_its_window_alone(clock: SimpleNamespace) -> None:
    own = Windowed(clock, windows_s=2 * 36 * STEP_S)
    own.multiple = 8
    own.take([Arm("a", own.log)])
    plain, flipped = [""] * 9, ["+a", *["a"] * 9, "-a"]
    assert own.log == [*plain, *flipped, *flipped, *plain, *flipped, *plain, *plain, *flipped]


@pytest.mark.parametrize(
    ("windows_s", "blocks"), [(0.0, 1), (9.6, 4), (1000.0, windows.LEAST_BLOCKS)]
)
def test_blocks(clock: SimpleNamespace, windows_s: float, blocks: int) -> None:
    """One of two arms takes four times 6 steps."""
    own = Windowed(clock, windows_s=windows_s)
    told = own.take([Arm("a", own.log)])
    assert len(told) == 4 * blocks


@pytest.mark.parametrize(("multiple", "count"), [(1, 5), (2, 4), (4, 4), (8, 8)])
def test_steps_of_a_window(clock: SimpleNamespace, multiple: int, count: int) -> None:
    own = Windowed(clock)
    own.multiple = multiple
    (first, *_) = own.take([])
    assert first["steps"] == count
    assert first["seconds"] == pytest.approx(count * STEP_S)
    assert first["issued_s"] == pytest.approx(count * STEP_S)
    assert first["peak_bytes"] == 0


@pytest.mark.parametrize(("times", "multiple", "count"), [(2.0, 1, 5), (4.0, 1, 1), (9.0, 2, 2)])
def test_slow_arms(clock: SimpleNamespace, times: float, multiple: int, count: int) -> None:
    own = Windowed(clock)
    own.multiple = multiple
    told = own.take([Arm("a", own.log, times=times)])
    assert {one["steps"] for one in told if one["arm"] == "a"} == {count}
    plain = {one["steps"] for one in told if one["arm"] == "as it is"}
    assert plain == {5 if multiple == 1 else 4}
    longer = Windowed(clock, windows_s=18.0)
    told = longer.take([Arm("a", longer.log, times=times)])
    assert {one["block"] for one in told if one["arm"] == "a"} == set(range(1 if times > 3 else 4))
    assert {one["block"] for one in told} == set(range(4))


def test_windows_take_no_longer_than_they_may(clock: SimpleNamespace) -> None:
    own = Windowed(clock, windows_s=9.6)
    told = own.take([Arm("a", own.log, times=2.9)])
    assert {one["block"] for one in told} == {0, 1, 2}, "of four by the step as it is"


@pytest.mark.parametrize(
    ("plan", "kept", "names"),
    [
        ({}, ("bits", "step", "work"), "abc"),
        ({"only": None, "without": ["b"]}, ("bits", "step", "work"), "ac"),
        ({"only": ["a", "b"]}, ("bits", "step", "work"), "ab"),
        ({"only": ["a", "b"], "without": ["b"]}, ("bits", "step", "work"), "a"),
        ({"only": []}, ("bits", "step", "work"), ""),
        ({}, ("bits",), "a"),
    ],
)
def test_which_arms(
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    plan: dict[str, Any],
    kept: tuple[str, ...],
    names: str,
) -> None:
    own = Windowed(clock, **plan)
    every = [Arm(name, own.log, keeps=keeps) for name, keeps in zip("abc", ALL, strict=True)]
    monkeypatch.setattr(windows, "switches", lambda _: every)
    assert [arm.name for arm in own.told(kept)] == list(names)
    assert [one["arm"] for one in own.told_messages.of("arm")] == list(names)


ALL = ("bits", "step", "work")


def test_states_are_told(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Windowed(clock)
    states = {"a": ("tried", ""), "b": ("already on", "asked for"), "c": ("not applicable", "no")}
    every = [Arm(name, own.log, told=told) for name, told in states.items()]
    monkeypatch.setattr(windows, "switches", lambda _: every)
    assert [arm.name for arm in own.told(ALL)] == ["a", "b"]
    assert own.told_messages.of("arm") == [
        {"arm": name, "label": name, "keeps": "bits", "state": state, "why": why}
        for name, (state, why) in states.items()
    ]
