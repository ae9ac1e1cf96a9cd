"""Where a training step ends: the hooks that no script notices."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from .aside import Aside
from .batches import Batches
from .ranks import of_job
from .said import Said

# Of optimizers between two batches; behind more a loop is no longer taken for one over a loader.
MOST_STEPS = 32
FEW = 4  # times the batches that are ready: of a shorter loader none is thrown away
MOST_LOSSES = 1024  # of one step: a script that never steps shall not fill memory with them


class Anchors:
    """Has a course go on at each boundary, where a step has ended and the next has not begun.

    Of a loop over a DataLoader it is where the next batch is asked for, of others behind the step
    of the optimizer; of several optimizers that take turns, behind that of the last. Ranks of which
    some read no loader have it there, too: what others hand to them comes ahead of the next batch.
    """

    def __init__(self, say: Said, ends_epochs: bool = False) -> None:
        """`ends_epochs`: also while batches are replayed, as for scripts that count on it. What
        comes between epochs then takes a part of what is measured."""
        self.ends_epochs = ends_epochs
        self.steps = 0
        self.by_loader = False
        self.alike = True  # ranks: either all of them read a loader or none
        self.loader: Any = None  # that the last step's batch came from
        self.threaded: Any = None  # one that another thread reads, where no loader feeds the loop
        self.start_s = 0.0  # from the begin of a pass over the loader to its first batch
        self.aside = Aside()
        self.batches_count = 0  # of the last step
        self.losses: list[torch.Tensor] = []  # of the last step
        self.waited_s = 0.0  # for a loader, since it was set to 0
        self.own_s = 0.0  # what the hooks took, likewise
        self.optimizers: WeakValueDictionary[int, torch.optim.Optimizer] = WeakValueDictionary()
        self.batches = Batches()
        self.on_step: Callable[[torch.optim.Optimizer], None] | None = None
        self._say = say
        self._course: Generator[None, None, None] = (_ for _ in ())
        self._active, self._owns = False, False
        self._thread = 0  # that took the last step
        self._taken, self._taken_before = 0, 0  # steps of optimizers, and at the last boundary
        self._turn: list[int] = []  # optimizers since their turns began again
        self._last = 0  # of a turn
        self._passes: WeakSet[Handing] = WeakSet()  # over loaders, that may be a training's
        self._handed = 0  # batches for the last step
        self._losses: deque[torch.Tensor] = deque(maxlen=MOST_LOSSES)

    def follow(self, course: Generator[None, None, None]) -> None:
        """Hooks torch. The course goes on once for each step."""
        self._course, self._active = course, True
        os.register_at_fork(after_in_child=self.leave)  # a loader's processes train nothing
        register_optimizer_step_post_hook(_uncompiled(self._after_step))
        self._wrap_loader()
        self._wrap_backward()
        self._wrap_scaler()
        self.aside.watch()

    @property
    def source(self) -> Any:
        """The loader that the training's batches come from, by whatever thread; None without."""
        return self.loader if self.by_loader else self.threaded

    def leave(self) -> None:
        """The hooks do nothing from now on."""
        self._active = False

    def _wrap_loader(self) -> None:
        iterate = DataLoader.__iter__

        @functools.wraps(iterate)
        def handing(loader: Any) -> Any:
            if not self._active:
                return iterate(loader)
            self._turn_aside()
            passing = Handing(self, loader, functools.partial(iterate, loader))
            self._arrive(passing)
            # Replayed batches need no processes.
            if not self._replays(passing):
                began_s = time.perf_counter()
                self._wait(passing, passing.iterator)
                self.own_s += time.perf_counter() - began_s
            return passing

        DataLoader.__iter__ = handing

    def _wrap_backward(self) -> None:
        backward = torch.autograd.backward
        note = _uncompiled(self._note_loss)

        @functools.wraps(backward)
        def noting(tensors: Any, grad_tensors: Any = None, *args: Any, **options: Any) -> Any:
            if self._active and grad_tensors is None and isinstance(tensors, torch.Tensor):
                note(tensors)
            return backward(tensors, grad_tensors, *args, **options)

        # Tensor.backward calls it. A compiler leaves it out, but not what is called in it.
        torch.autograd.backward = torch._disable_dynamo(noting, recursive=False)

    def _wrap_scaler(self) -> None:
        scaler_class: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        step = scaler_class.step

        @functools.wraps(step)
        def scaled(scaler: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
            before = self._taken
            value = step(scaler, optimizer, *args, **options)
            # Left out where gradients overflowed, at the end of a step all the same.
            if self._taken == before and isinstance(optimizer, torch.optim.Optimizer):
                self._after_step(optimizer)
            return value

        scaler_class.step = scaled

    def skip_ready(self) -> None:
        """At a boundary of a loop over a loader: throws away as many batches as its processes may
        have ready, unless that is much of what it has."""
        loader = self.loader
        count = loader.num_workers * (loader.prefetch_factor or 0) if self.by_loader else 0
        with contextlib.suppress(TypeError):  # a loader without a length
            if len(loader) < FEW * count:
                return
        for passing in [one for one in self._passes if one.trains and one.loader is loader]:
            deque(itertools.islice(passing.iterator(), count), maxlen=0)

    def hand_over(self, passing: Handing) -> Any:
        """The loader's next batch, or one that was kept; raises StopIteration as the loader."""
        if not self._active:
            return next(passing.iterator())
        self._turn_aside()
        self._arrive(passing)
        began_s = time.perf_counter()
        try:
            replays = self._replays(passing)
            if replays or self.ends_epochs:  # an epoch's own batches may come behind replayed ones
                passing.raise_at_length()
            if replays:
                batch = self.batches.play(passing.loader.dataset)
            else:
                batch = self._wait(passing, lambda: next(passing.iterator()))
                self._keep(passing, batch)
            if torch.is_grad_enabled():  # else it is for an evaluation
                passing.count += 1
                passing.given += 1
                passing.thread = threading.get_ident()
                self._passes.add(passing)
        finally:
            self.own_s += time.perf_counter() - began_s
        return batch

    def _wait(self, passing: Handing, call: Callable[[], Any]) -> Any:
        """What the loader gives; the time is its own."""
        began_s = time.perf_counter()
        try:
            return call()
        except StopIteration:
            if not passing.trains:  # no step was taken with all of its batches: an evaluation
                self._passes.discard(passing)
            raise
        finally:
            waited_s = time.perf_counter() - began_s
            self.own_s -= waited_s
            if not passing.given:
                passing.start_s += waited_s
            if self._trains(passing):
                self.waited_s += waited_s

    def _keep(self, passing: Handing, batch: Any) -> None:
        if not self._trains(passing):
            return
        try:
            self.batches.note(passing.loader.dataset, batch)
        except Exception as error:  # the course's to tell, and no error of the script
            self.leave()
            with contextlib.suppress(Exception):
                self._course.throw(error)

    def _trains(self, passing: Handing) -> bool:
        """Whether what is asked for now is for training, as far as steps have shown. Some scripts
        make a loader for each epoch."""
        dataset = getattr(self.loader, "dataset", None)
        known = passing.trains or passing.loader.dataset is dataset is not None
        return known and torch.is_grad_enabled() and threading.get_ident() == self._thread

    def _replays(self, passing: Handing) -> bool:
        return self.batches.plays(passing.loader.dataset) and self._trains(passing)

    def _turn_aside(self) -> None:
        if not torch.is_grad_enabled():
            self.aside.begin()

    def _arrive(self, passing: Handing) -> None:
        """At a boundary, where a step was taken since the last batch."""
        at_loader = self.by_loader and not self._ends_by_optimizer()
        if at_loader and self._taken > self._taken_before and self._trains(passing):
            self.aside.end()
            self._end_step()

    def _note_loss(self, loss: torch.Tensor) -> None:
        began_s = time.perf_counter()
        # A copy, as scripts and captured graphs write into theirs. Nothing waits for it.
        self._losses.append(loss.detach().clone())
        self.own_s += time.perf_counter() - began_s

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if not self._active:
            return
        began_s = time.perf_counter()
        self._thread = threading.get_ident()
        self._taken += 1
        self.aside.step(self.steps)
        if self.on_step is not None:
            self.on_step(optimizer)
        ends_turn = self._ends_turn(optimizer)
        self._look_at_passes()
        self.own_s += time.perf_counter() - began_s
        if ends_turn and self._ends_by_optimizer():
            self._end_step()

    def _ends_by_optimizer(self) -> bool:
        """The first step of several ranks, too, behind which they tell each other."""
        return not (self.by_loader and self.alike) or (not self.steps and of_job().world > 1)

    def _ends_turn(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether none comes behind it before the first comes again."""
        own = id(optimizer)
        if own not in self.optimizers:
            self.optimizers[own] = optimizer
            self._last = own
        elif own in self._turn:
            self._last = self._turn[-1]
            self._turn.clear()
        self._turn.append(own)
        return own == self._last

    def _look_at_passes(self) -> None:
        """Those that are still under way are what the step was taken with."""
        if self._taken - self._taken_before > MOST_STEPS:
            self._passes.clear()
        every = list(self._passes)
        passes = [passing for passing in every if passing.thread == self._thread]
        for passing in passes:
            passing.trains, self.loader = True, passing.loader
            self.start_s = passing.start_s or self.start_s
        if every and not passes:
            self.threaded = max(every, key=lambda passing: passing.given).loader
        self.by_loader = bool(passes)
        self._handed = sum(passing.count for passing in passes)

    def _end_step(self) -> None:
        self._owns = self._owns or self._say.owns()
        if not self._owns:
            self.leave()
            return
        self._taken_before = self._taken
        self._turn.clear()
        for passing in list(self._passes):
            passing.count = 0
        self.steps += 1
        self.batches_count = self._handed
        self.losses = list(self._losses)
        self._losses.clear()
        if next(self._course, self) is self:
            self.leave()


class Handing:
    """A loader's iterator that asks the anchors for each batch: one pass over the loader."""

    def __init__(self, anchors: Anchors, loader: Any, iterate: Callable[[], Iterator[Any]]) -> None:
        self.loader = loader
        self.trains = False  # a step was taken with a batch of this pass
        self.count = 0  # of batches since the last boundary
        self.given = 0  # of batches in all
        self.thread = 0  # that asked last
        self.start_s = 0.0  # to its first batch
        self._anchors, self._iterate = anchors, iterate
        self._iterator: Iterator[Any] | None = None

    def iterator(self) -> Iterator[Any]:
        """The loader's own."""
        if self._iterator is None:
            self._iterator = self._iterate()
        return self._iterator

    def raise_at_length(self) -> None:
        """Raises StopIteration as the loader would; whoever takes no step might ask forever."""
        with contextlib.suppress(TypeError):  # a loader without a length
            count = self.given if self._anchors.ends_epochs else self.count
            if count >= len(self.loader):
                raise StopIteration

    def __iter__(self) -> Handing:
        return self

    def __next__(self) -> Any:
        return self._anchors.hand_over(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.iterator(), name)

    def __len__(self) -> int:
        return len(self.iterator())  # type: ignore[arg-type]


def _uncompiled(hook: Callable[..., None]) -> Callable[..., None]:
    """Called between compiled code, which would take clocks and counts for constants."""
    return torch._disable_dynamo(lambda *args: hook(*args))  # type: ignore[no-any-return]
