"""Where steps end in loops as scripts have them."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import anchors  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from tests.advise import scripts  # noqa: E402

pytestmark = pytest.mark.world


class Watched:
    """A course that writes down what it is told at each boundary."""

    def __init__(self) -> None:
        self.owner = True
        self.trace: list[Any] = []  # what the script did, and "|" at each boundary
        self.counts: list[int] = []  # of batches
        self.losses: list[list[float]] = []
        self.errors: list[BaseException] = []
        self.anchors = anchors.Anchors(self)
        self.anchors.follow(self.course())

    def owns(self) -> bool:
        """As of what says messages."""
        return self.owner

    def course(self) -> Any:
        """Endless."""
        while True:
            self.trace.append("|")
            self.counts.append(self.anchors.batches_count)
            self.losses.append([float(loss) for loss in self.anchors.losses])
            try:
                yield
            except ValueError as error:
                self.errors.append(error)

    @property
    def text(self) -> str:
        """The trace."""
        return "".join(self.trace)


@pytest.fixture(name="watched")
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """With torch as it was behind it."""
    scripts.unhooked(monkeypatch)
    watched = Watched()
    yield watched
    watched.anchors.leave()


class Model:
    """One weight and its optimizer."""

    def __init__(self, watched: Watched, letter: str = "s") -> None:
        self.weight = nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.0)
        self.watched, self.letter = watched, letter

    def backward(self, factor: float = 1.0) -> None:
        """Of a loss that is the factor."""
        (self.weight * factor).sum().backward()

    def step(self) -> None:
        """Of the optimizer, as the trace shows."""
        self.watched.trace.append(self.letter)
        self.optimizer.step()


def loader(count: int, **options: Any) -> Any:
    """Of so many batches of one number."""
    return DataLoader(TensorDataset(torch.arange(float(count))), **options)


def traced(watched: Watched, batches: Any, letter: str = "b") -> Iterator[Any]:
    """The batches, as the trace shows."""
    for (batch,) in batches:
        watched.trace.append(letter)
        yield batch


@pytest.mark.parametrize(("ends", "count"), [(True, 3), (False, 6)])
def test_epochs_that_end_while_batches_are_replayed(
    watched: Watched, ends: bool, count: int
) -> None:
    model, batches = Model(watched), loader(3)
    watched.anchors.batches.notes = True
    for batch in traced(watched, batches):
        model.backward(float(batch))
        model.step()
    watched.anchors.batches.notes, watched.anchors.batches.playing = False, True
    watched.anchors.ends_epochs = ends
    steps = 0
    for batch in traced(watched, batches):
        model.backward(float(batch))
        model.step()
        steps += 1
        if steps == 6:
            break
    assert steps == count


def test_an_epoch_ends_though_some_of_its_batches_were_replayed(watched: Watched) -> None:
    model, batches = Model(watched), loader(3)
    watched.anchors.batches.notes = watched.anchors.ends_epochs = True
    for playing in (False, True):
        steps = 0
        for batch in traced(watched, batches):
            watched.anchors.batches.playing = playing and steps < 1
            model.backward(float(batch))
            model.step()
            steps += 1
        assert steps == 3


def test_a_plain_loop_over_epochs(watched: Watched) -> None:
    model, batches = Model(watched), loader(3)
    for _ in range(2):
        for batch in traced(watched, batches):
            model.backward(float(batch))
            model.step()
    assert watched.text == "bs|bs|bs|bs|bs|bs|"
    assert watched.counts == [1] * 6
    assert watched.losses == [[0.0], [1.0], [2.0]] * 2
    assert watched.anchors.by_loader
    assert watched.anchors.loader is batches
    assert watched.anchors.steps == 6
    assert list(watched.anchors.optimizers.values()) == [model.optimizer]


def test_an_epoch_that_is_left_ends_at_the_next_one(watched: Watched) -> None:
    model, batches = Model(watched), loader(3)
    for _ in range(2):
        for _ in itertools.islice(traced(watched, batches), 2):
            model.step()
        watched.trace.append("e")
    assert watched.text == "bs|bse|bs|bse"


def test_accumulation(watched: Watched) -> None:
    model, batches = Model(watched), loader(6)
    for place, batch in enumerate(traced(watched, batches)):
        model.backward(float(batch))
        if place % 3 == 2:
            model.step()
    assert watched.text == "bbbs|bbbs|"
    assert watched.counts == [3, 3]
    assert watched.losses == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_a_scaler_that_skips_a_step(watched: Watched) -> None:
    model, batches = Model(watched), loader(3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for batch in traced(watched, batches):
        scaler.scale((model.weight * (float("inf") if batch == 1 else 1.0)).sum()).backward()
        scaler.step(model.optimizer)
        scaler.update()
    assert watched.text == "b|b|b|"


def test_evaluations_between_steps(watched: Watched) -> None:
    model, batches, others = Model(watched), loader(6), loader(2)
    for place, _ in enumerate(traced(watched, batches)):
        model.step()
        if place % 2 == 1:
            for _ in traced(watched, others, "e"):
                pass
    assert watched.text == "bs|bsee|bs|bsee|bs|bsee|"
    assert watched.counts == [1] * 6
    assert watched.anchors.loader is batches


def test_evaluations_ahead_of_a_step(watched: Watched) -> None:
    model, batches, others = Model(watched), loader(4), loader(5)
    for place, _ in enumerate(traced(watched, batches)):
        if place % 2 == 0:
            for _ in itertools.islice(traced(watched, others, "e"), 2):
                pass
        model.step()
    assert watched.text == "bees|bs|bees|bs|"
    assert watched.counts == [1] * 4


def test_evaluations_without_gradients(watched: Watched) -> None:
    model, batches, others = Model(watched), loader(3), iter(loader(3))
    for _ in traced(watched, batches):
        model.step()
        with torch.no_grad():
            assert len(next(others)) == 1
            list(traced(watched, batches, "e"))
    assert watched.text == "bseee|" * 3
    assert watched.counts == [1] * 3


def test_evaluations_are_not_kept(watched: Watched) -> None:
    model, batches, others = Model(watched), loader(5), loader(2)
    got = []
    kept = watched.anchors.batches
    for place, batch in enumerate(itertools.islice(batches, 5)):
        model.step()
        got.append(float(batch[0]))
        got += [-1 - float(one[0]) for one in others]
        kept.notes = place < 1
        kept.playing = place >= 1
    # Behind the second step the batch is given again; those of the evaluation come as ever.
    assert [one for one in got if one >= 0] == [0, 1, 1, 1, 1]
    assert [one for one in got if one < 0] == [-1, -2] * 5


def test_two_loaders_at_once(watched: Watched) -> None:
    model = Model(watched)
    both = zip(traced(watched, loader(3)), traced(watched, loader(3), "B"), strict=True)
    for _ in both:
        model.step()
    assert watched.text == "bBs|bBs|bBs|"
    assert watched.counts == [2] * 3


def test_optimizers_that_take_turns(watched: Watched) -> None:
    one, other = Model(watched, "d"), Model(watched, "g")
    for _ in traced(watched, loader(3)):
        one.step()
        other.step()
    assert watched.text == "bdg|" * 3


def test_a_loop_without_a_loader(watched: Watched) -> None:
    model = Model(watched)
    for factor in range(3):
        model.backward(factor)
        model.backward(factor)
        model.step()
    assert watched.text == "s|" * 3
    assert watched.counts == [0] * 3
    assert watched.losses == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert not watched.anchors.by_loader


def test_turns_without_a_loader(watched: Watched) -> None:
    one, other, third = (Model(watched, letter) for letter in "dgw")
    third.step()  # once, ahead of all
    for _ in range(3):
        one.step()
        other.step()
    assert watched.text == "w|d|g|dg|dg|"


def test_one_that_steps_once_does_not_stop_turns(watched: Watched) -> None:
    one, other = Model(watched, "d"), Model(watched, "g")
    one.step()
    other.step()
    for _ in range(3):
        one.step()
    assert watched.text == "d|g|dd|d|"


def test_optimizers_that_are_gone_are_forgotten(watched: Watched) -> None:
    Model(watched).step()
    assert not watched.anchors.optimizers


def test_a_batch_that_is_used_for_ever(watched: Watched) -> None:
    model, batches = Model(watched), iter(loader(2))
    next(batches)
    for _ in range(anchors.MOST_STEPS + 3):
        model.step()
    assert watched.text == "s" * anchors.MOST_STEPS + "s|s|s|"


def test_a_loader_of_another_thread(watched: Watched) -> None:
    model = Model(watched)
    got: list[Any] = []

    def load() -> None:
        got.extend(traced(watched, loader(2)))

    for _ in range(2):
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
        model.step()
    assert watched.text == "bbs|bbs|"
    assert not watched.anchors.by_loader
    assert len(got) == 4


def test_a_script_that_never_steps(watched: Watched) -> None:
    model, batches = Model(watched), loader(2)
    for _ in range(anchors.MOST_LOSSES):
        for batch in batches:
            model.backward(float(batch[0]))
    assert watched.text == ""
    assert len(watched.anchors._losses) == anchors.MOST_LOSSES


def test_a_process_that_may_say_nothing(watched: Watched) -> None:
    watched.owner = False
    model = Model(watched)
    for _ in traced(watched, loader(3)):
        model.step()
    assert watched.text == "bsbsbs"


def test_a_course_that_ends(watched: Watched) -> None:
    model = Model(watched)
    watched.anchors._course.close()
    for _ in traced(watched, loader(3)):
        model.step()
    assert watched.text == "bsbsbs"
    assert watched.anchors.steps == 1


class Early(DataLoader):  # type: ignore[misc]
    """Asks for a batch ahead of when it is needed, as accelerate's."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        batch = next(batches)
        for later in batches:
            yield batch
            batch = later
        yield batch


def test_a_loader_that_asks_early(watched: Watched) -> None:
    model = Model(watched)
    batches = Early(TensorDataset(torch.arange(3.0)))
    for _ in range(2):
        for _ in traced(watched, batches):
            model.step()
    assert watched.text == "bs|bs|bs|" + "bs|bs|bs"
    assert watched.counts == [2, 1, 0, 2, 1]
    assert watched.anchors.by_loader


class Endless(DataLoader):  # type: ignore[misc]
    """One iterator for all epochs, as some have it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.batches = super().__iter__()

    def __iter__(self) -> Any:
        yield from itertools.islice(self.batches, 2)


def test_a_loader_of_one_iterator(watched: Watched) -> None:
    model, batches = Model(watched), Endless(TensorDataset(torch.arange(4.0)))
    for _ in range(2):
        for _ in traced(watched, batches):
            model.step()
    assert watched.text == "bs|bs|bs|bs"


def test_processes_that_stay(watched: Watched) -> None:
    model = Model(watched)
    batches = loader(2, num_workers=1, persistent_workers=True)
    for _ in range(2):
        for _ in traced(watched, batches):
            model.step()
    assert watched.text == "bs|bs|bs|bs|"
    batches._iterator._shutdown_workers()


def test_what_is_handed_over_is_an_iterator(watched: Watched) -> None:
    batches = iter(loader(3))
    assert len(batches) == 3
    assert iter(batches) is batches
    assert batches._num_workers == 0
    with pytest.raises(AttributeError, match="nowhere"):
        batches.nowhere  # noqa: B018
    assert [float(one) for (one,) in batches] == [0, 1, 2]
    with pytest.raises(StopIteration):
        next(batches)
    watched.anchors.leave()
    assert not isinstance(iter(loader(3)), anchors.Handing)


def replayed(watched: Watched, batches: Any) -> Model:
    """Behind two steps, of which the second's batch is given again from now on."""
    model = Model(watched)
    kept = watched.anchors.batches
    for place, _ in enumerate(itertools.islice(batches, 2)):
        model.step()
        kept.notes = place == 0
    kept.notes, kept.playing = False, True
    return model


def test_replays_start_no_processes(watched: Watched) -> None:
    batches = loader(3, num_workers=1, multiprocessing_context="spawn")
    batches.num_workers = 0
    model = replayed(watched, batches)
    batches.num_workers = 1
    for _ in range(2):
        passing = iter(batches)
        for batch in itertools.islice(passing, 3):
            assert batch[0] == 1
            model.step()
        assert passing._iterator is None


@pytest.mark.parametrize(("count", "left"), [(64, 60), (15, 15)])
def test_what_is_ready_is_thrown_away_unless_it_is_much(
    watched: Watched, count: int, left: int
) -> None:
    """Two processes that prefetch two batches each."""
    model, batches = Model(watched), loader(count, num_workers=2)
    steps = 0
    for _ in traced(watched, batches):
        model.backward()
        model.step()
        steps += 1
        if steps == 1:
            watched.anchors.skip_ready()
    assert steps == left


def test_whoever_takes_no_step_is_not_given_batches_for_ever(watched: Watched) -> None:
    batches = loader(3)
    model = replayed(watched, batches)
    assert len(list(batches)) == 3
    taken = 0
    for _ in itertools.islice(batches, 9):
        model.step()
        taken += 1
    assert taken == 9
    with torch.no_grad():
        assert [float(one) for (one,) in batches] == [0, 1, 2]


def test_a_loader_that_is_made_for_each_epoch_is_replayed(watched: Watched) -> None:
    model, dataset = Model(watched), TensorDataset(torch.arange(3.0))
    given = []
    for epoch in range(5):
        watched.anchors.batches.notes, watched.anchors.batches.playing = epoch == 1, epoch == 3
        for (batch,) in itertools.islice(DataLoader(dataset, shuffle=True), 3):
            given += [float(batch)] if epoch in (1, 3) else []
            model.step()
    assert given[:3] == given[3:]


def test_a_loader_without_a_length_is_replayed(watched: Watched) -> None:
    class Stream(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(range(3))

    batches = DataLoader(Stream())
    model = replayed(watched, batches)
    for batch in itertools.islice(batches, 9):
        assert batch == 1
        model.step()


def test_a_batch_that_cannot_be_kept(watched: Watched) -> None:
    class Hostile:
        def __copy__(self) -> Any:
            raise ValueError("no copies")

    model = Model(watched)
    batches = DataLoader([0.0] * 4, collate_fn=lambda _: Hostile())
    for _ in batches:
        model.step()
        watched.anchors.batches.notes = True
    assert [str(error) for error in watched.errors] == ["no copies"]
    assert watched.anchors.steps == 1


def test_waiting_is_no_cost_of_the_hooks(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = itertools.count()
    model, every = Model(watched), loader(9)
    batches = iter(every)
    next(batches)
    model.step()
    monkeypatch.setattr(anchors.time, "perf_counter", lambda: float(next(now_s)))
    watched.anchors.waited_s = watched.anchors.own_s = 0.0
    next(batches)
    assert watched.anchors.waited_s == 1.0
    assert watched.anchors.own_s == 2.0
    model.step()
    assert watched.anchors.own_s == 3.0
    model.backward()
    assert watched.anchors.own_s == 4.0
    iter(every)
    assert watched.anchors.waited_s == 2.0
    assert watched.anchors.own_s == 6.0


def test_losses_that_are_written_to(watched: Watched) -> None:
    model = Model(watched)
    loss = (model.weight * 2).sum()
    torch.autograd.backward(loss)
    with torch.no_grad():
        loss.fill_(7)
    torch.autograd.backward([model.weight * 3], [torch.ones(1)])  # no loss
    model.step()
    assert watched.losses == [[2.0]]


def test_children_are_left_alone(watched: Watched) -> None:
    model = Model(watched)
    model.step()
    child = os.fork()
    if child == 0:  # without pytest, whatever happens
        with contextlib.suppress(BaseException):
            model.step()
        os._exit(len(watched.text))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == len("s|s")


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_compiled_is_counted(watched: Watched, whole: bool) -> None:
    model = Model(watched)

    def forward(factor: Any) -> Any:
        return (model.weight * factor).sum()

    def train(factor: Any) -> None:
        forward(factor).backward()
        model.optimizer.step()

    compiled = torch.compile(train, backend="eager")
    step = torch.compile(model.optimizer.step, backend="eager")
    for factor in torch.arange(4.0):
        if whole:
            compiled(factor)
        else:
            forward(factor).backward()
            step()
    assert watched.text == "|" * 4
    assert watched.anchors.steps == 4
    assert watched.losses == [[0.0], [1.0], [2.0], [3.0]]


def test_an_evaluation_every_few_steps_is_aside(watched: Watched) -> None:
    model, own = Model(watched), nn.Linear(1, 1)
    for step, _ in enumerate(loader(9)):
        own.train()
        model.step()
        if step % 3 == 2:
            own.eval()
            time.sleep(0.01)
    aside = watched.anchors.aside
    assert [step for step, _ in aside.every] == [2, 5, 8]
    assert aside.per_step_s() == (aside.every[1][1] + aside.every[2][1]) / 6 >= 0.01 / 3


@pytest.mark.parametrize("by_loader", [True, False])
def test_batches_without_gradients_are_aside_too(watched: Watched, by_loader: bool) -> None:
    model, batches = Model(watched), loader(4)
    for step, _ in enumerate(batches if by_loader else range(4)):
        model.step()
        if step in (1, 3):
            with torch.no_grad():
                for _ in loader(1):
                    time.sleep(0.01)
    assert [step for step, _ in watched.anchors.aside.every] == ([1, 3] if by_loader else [])


def test_what_every_step_does_is_a_part_of_it(watched: Watched) -> None:
    model, own = Model(watched), nn.Linear(1, 1)
    for _ in loader(4):
        own.train()
        model.step()
        own.eval()
        time.sleep(0.002)
    assert not watched.anchors.aside.every[1:]


def test_a_part_that_always_evaluates_is_no_evaluation(watched: Watched) -> None:
    model, own = Model(watched), nn.Linear(1, 1)
    for _ in loader(6):
        own.eval()
        time.sleep(0.002)
        model.step()
    assert not watched.anchors.aside.every


def test_a_loader_that_another_thread_reads(watched: Watched) -> None:
    model, batches = Model(watched), loader(9)
    queue: Any = Queue(1)
    thread = threading.Thread(target=lambda: [queue.put(batch) for batch in batches])
    thread.start()
    for _ in range(9):
        queue.get()
        model.step()
    thread.join()
    assert (watched.anchors.by_loader, watched.anchors.source) == (False, batches)
    for _ in batches:
        model.step()
        break
    assert watched.anchors.by_loader


def test_how_long_a_loader_takes_to_its_first_batch(watched: Watched) -> None:
    class Slow(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            time.sleep(0.05)
            return iter(range(3))

    model = Model(watched)
    for _ in DataLoader(Slow()):
        model.step()
    assert watched.anchors.start_s >= 0.05
