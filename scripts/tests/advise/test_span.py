"""Spans of steps, on a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import span  # noqa: E402
from gpulift_probe.aside import Aside  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler  # noqa: E402

from tests.advise import scripts, steps  # noqa: E402

pytestmark = pytest.mark.world


class Spanned(span.Span):  # type: ignore[misc]
    """A span of which a test takes the steps, and says how long each takes."""

    def __init__(self, clock: SimpleNamespace, loader: Any = None, **plan: Any) -> None:
        self.clock, self.rest_s, self.waited_s = clock, 0.0, 0.0
        self.told = scripts.Messages()
        made = SimpleNamespace(
            steps=0, by_loader=loader is not None, loader=loader, waited_s=9.0, own_s=9.0
        )
        made.optimizers, made.batches_count, made.aside = {}, 1, Aside()
        made.source, made.start_s = loader, 0.25
        made.skipped_at = []
        made.skip_ready = lambda: made.skipped_at.append(made.steps)
        super().__init__(plan, made, self.told)

    def synchronize(self) -> None:
        """The device has so much left to do."""
        self.clock.now_s += self.rest_s

    def take(self, course: Any, step_s: Callable[[int], float]) -> int:
        """All of the course; how many steps it had taken."""
        first = self.anchors.steps
        while next(course, self) is not self:
            self.clock.now_s += step_s(self.anchors.steps)
            self.anchors.steps += 1
            self.anchors.waited_s += self.waited_s
            self.anchors.own_s += 0.25
        return int(self.anchors.steps - first)


def test_so_many_steps(clock: SimpleNamespace) -> None:
    own = Spanned(clock)
    own.waited_s = 0.5
    assert own.take(own.taken(3), lambda step: step + 1.0) == 3
    assert own.times == [(1.0, 0.5), (2.0, 0.5), (3.0, 0.5)]
    assert (own.seconds, own.issued_s, own.step_s, own.hooks_s) == (6.0, 6.0, 2.0, 0.25)


@pytest.mark.parametrize(("least_s", "count"), [(3.0, 2), (4.0, 2), (5.0, 3)])
def test_steps_until_a_time_is_over(clock: SimpleNamespace, least_s: float, count: int) -> None:
    own = Spanned(clock)
    assert own.take(own.taken(2, least_s), lambda _: 2.0) == count


def test_the_devices_rest_is_in_the_last_step(clock: SimpleNamespace) -> None:
    own = Spanned(clock)
    own.rest_s = 0.5
    own.take(own.taken(2), lambda _: 1.0)
    assert own.times == [(1.0, 0.0), (1.5, 0.0)]
    assert (own.seconds, own.issued_s, own.step_s) == (2.5, 2.0, 1.25)


@pytest.mark.parametrize(("third_s", "steps_before"), [(0.515, 24), (0.53, 32)])
def test_steps_that_are_flat(clock: SimpleNamespace, third_s: float, steps_before: int) -> None:
    """Spans of 4, as these take a second, then of 8 steps; 4 ahead of all."""
    own = Spanned(clock, flat_s=1000.0)
    spans = {4: 900.0, 8: 0.25, 16: 0.5}
    own.take(
        own.until_flat(), lambda step: next((spans[end] for end in spans if step < end), third_s)
    )
    assert own.anchors.steps == own.flat_after == steps_before
    assert own.anchors.skipped_at == [2]  # what was ready behind the compiler's steps


def test_a_training_that_goes_on_keeps_all_of_its_batches(clock: SimpleNamespace) -> None:
    own = Spanned(clock, live_s=1.0)
    own.throws_away = False
    assert own.take(own.live(), lambda _: 1.0) == 2
    assert not own.anchors.skipped_at


def test_steps_that_are_never_flat(clock: SimpleNamespace) -> None:
    own = Spanned(clock, flat_s=20.0)
    with pytest.raises(span.NeverFlat, match="as long as those before, for 20 s"):
        own.take(own.until_flat(), lambda step: 1.1**step)
    assert own.flat_after is None


@pytest.mark.parametrize(
    ("workers", "step_s", "count"), [(0, 0.5, 8), (3, 0.5, 8), (6, 0.5, 12), (6, 2.0, 2)]
)
def test_steps_of_a_span(clock: SimpleNamespace, workers: int, step_s: float, count: int) -> None:
    own = Spanned(clock, SimpleNamespace(num_workers=workers))
    own.step_s = step_s
    assert own.per_span() == count


def test_a_loop_without_a_loader_has_no_workers(clock: SimpleNamespace) -> None:
    own = Spanned(clock, SimpleNamespace(num_workers=6))
    own.step_s, own.anchors.by_loader = 0.5, False
    assert own.per_span() == 8
    own.ranks = SimpleNamespace(gather=lambda workers: [workers, 6])
    assert own.per_span() == 12, "as another rank, which has some"


def test_live_steps_are_told(clock: SimpleNamespace) -> None:
    own = Spanned(clock, live_s=3.0)
    own.waited_s = 0.5
    own.step_s = 2.0
    own.take(own.live(), lambda _: 1.0)
    assert own.told.of("live") == [{"steps_s": [1.0] * 3, "waits_s": [0.5] * 3}]


def test_what_comes_between_steps_is_no_part_of_them(clock: SimpleNamespace) -> None:
    own = Spanned(clock)

    def step_s(step: int) -> float:
        if step == 1:
            own.anchors.aside.every.append((1, 5.0))
        return 6.0 if step == 1 else 1.0

    own.take(own.taken(3), step_s)
    assert own.times == [(1.0, 0.0)] * 3
    assert (own.seconds, own.issued_s, own.step_s) == (3.0, 3.0, 1.0)


ROWS = list(range(8))


@pytest.mark.parametrize(
    ("loader", "batch"),
    [
        (DataLoader(ROWS, batch_size=4), 4),
        (DataLoader(ROWS, batch_sampler=BatchSampler(SequentialSampler(ROWS), 2, False)), 2),
        (DataLoader(ROWS, batch_sampler=[[0, 1], [2]]), None),
    ],
)
def test_facts(clock: SimpleNamespace, loader: Any, batch: int | None) -> None:
    own = Spanned(clock, loader)
    own.seen = steps.seen(operators={"aten::convolution": 1})
    own.take(own.taken(2), lambda _: 1.0)
    own.anchors.batches_count, own.flat_after = 3, 17
    own.anchors.optimizers = {1: own.seen.optimizers[0]}
    own.tell_facts()
    assert own.told.of("facts") == [
        {
            "anchor": "loader",
            "steps_before": 17,
            "optimizers": ["AdamW"],
            "loader": {
                "workers": 0,
                "prefetch": None,
                "pin_memory": False,
                "batch": batch,
                "sampled": batch is None,
                "dealt": True,
                "threaded": False,
                "batches": len(loader),
                "starts_s": 0.25,
            },
            "batches_per_step": 3,
            "compiled": False,
            "cudnn_search": False,
            "convolutions": True,
            "notes": [],
            "hooks_s": 0.25,
            "host": {},
            "unset": "",
            "issued": 0,
            "ddp": None,
        }
    ]


def test_facts_of_a_loop_without_a_loader(clock: SimpleNamespace) -> None:
    own = Spanned(clock)
    own.seen = steps.seen()
    own.take(own.taken(2), lambda _: 1.0)
    own.anchors.batches_count = 0
    own.tell_facts()
    (facts,) = own.told.of("facts")
    assert (facts["anchor"], facts["loader"], facts["batches_per_step"]) == ("optimizer", None, 1)


def test_the_machine() -> None:
    told = span.machine(SimpleNamespace(optimizers={1: steps.seen().optimizers[0]}))
    assert (told["device"], told["torch"]) == ("cpu", torch.__version__)
