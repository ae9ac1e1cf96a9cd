"""Spans of steps, and what they tell of a script."""

from __future__ import annotations

import atexit
import math
import os
import platform
import time
from collections.abc import Generator
from typing import Any

import torch

from . import exchange
from .anchors import Anchors
from .arms import synchronize
from .constructed import batch_of, is_dealt, is_sampled, length_of, unset
from .noted import notes
from .ranks import Ranks
from .said import Said
from .seen import Observer, Seen

LEAST_STEPS, LEAST_S = 8, 1.0  # of a span that tells how fast steps are
FLAT = 0.05  # by which two spans may differ
COMPILED_IN = 2  # steps, for which no limit of time holds

Course = Generator[None, None, None]  # goes on once for each step that the script takes


class NeverFlat(Exception):
    """No two spans of steps took as long as each other, or steps became others meanwhile."""


def machine(anchors: Anchors) -> dict[str, Any]:
    """Where the process runs."""
    device = device_of(anchors)
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": len(os.sched_getaffinity(0)),
    }


def device_of(anchors: Anchors) -> torch.device:
    """Of the first parameter that is trained."""
    optimizer = next(iter(anchors.optimizers.values()))
    device: torch.device = optimizer.param_groups[0]["params"][0].device
    return device


class Span:
    """Steps of a script as it runs: until they are flat, and some that are timed."""

    throws_away = True  # batches: the training is of no use

    def __init__(self, plan: dict[str, Any], anchors: Anchors, say: Said) -> None:
        self.plan, self.anchors, self.say = plan, anchors, say
        self.ranks = Ranks()  # alone, unless the course was told of others
        self.arm = ""  # whose steps are taken now
        self.step_s = math.inf  # of the slowest rank, as the last span had it
        self.flat_after: int | None = None
        self.trained: int | None = None  # weights, as the step that was watched had it

    def steps(self) -> Course:
        """All of the course."""
        raise NotImplementedError

    def current(self) -> str:
        """The arm whose steps are taken now; empty where it is none."""
        return self.arm

    @property
    def device(self) -> torch.device:
        """What is waited for."""
        return device_of(self.anchors)

    @property
    def on_cuda(self) -> bool:
        """Whether there is something to wait for."""
        return bool(self.device.type == "cuda")

    def synchronize(self) -> None:
        """Waits for all that was issued."""
        if self.on_cuda:
            synchronize(self.device)

    def taken(self, count: int, least_s: float = 0.0) -> Course:
        """Lets so many steps be taken, and more until that time is over; `times` has them."""
        anchors = self.anchors
        self.times: list[tuple[float, float]] = []
        asides = anchors.aside.every
        self.synchronize()
        anchors.aside.settle = self.synchronize
        anchors.waited_s = anchors.own_s = 0.0
        began_s = last_s = time.perf_counter()
        self._wanted = count
        while self._goes_on(least_s, last_s - began_s):
            known = len(asides)
            yield
            now_s = time.perf_counter()
            aside_s = sum(seconds for _, seconds in asides[known:])
            began_s += aside_s
            self.times.append((now_s - last_s - aside_s, anchors.waited_s))
            anchors.waited_s, last_s = 0.0, now_s
        self.hooks_s = anchors.own_s / len(self.times)
        self.issued_s = last_s - began_s
        self.synchronize()
        self.seconds = time.perf_counter() - began_s
        # The device's part of the last step, which the host does not wait for.
        self.times[-1] = (self.times[-1][0] + self.seconds - self.issued_s, self.times[-1][1])
        self.step_s = max(self.ranks.gather(self.seconds / len(self.times)))

    def _goes_on(self, least_s: float, over_s: float) -> bool:
        taken = len(self.times)
        if taken < self._wanted or self.ranks.world == 1:
            return taken < self._wanted or over_s < least_s
        if least_s:  # the first rank says how many more: to ask at each step would be a part of it
            missing_s = max(0.0, least_s - over_s)
            self._wanted += self.ranks.first(math.ceil(missing_s / over_s * taken))
        return taken < self._wanted

    def until_flat(self) -> Course:
        """Spans until one takes as long as that before, behind some in which all is compiled;
        raises NeverFlat."""
        for _ in range(COMPILED_IN):
            yield
        yield from self.fed()
        limit_s = float(self.plan["flat_s"])
        until_s = time.monotonic() + limit_s
        last_s = math.inf
        while self.ranks.first(time.monotonic() < until_s):
            self.say.phase(f"waits until steps take as long as before: {self.anchors.steps} so far")
            yield from self.taken(self.per_span(), LEAST_S)
            if abs(self.step_s / last_s - 1) < FLAT:
                self.flat_after = self.anchors.steps
                return
            last_s = self.step_s
        raise NeverFlat(f"steps never took as long as those before, for {limit_s:.0f} s")

    def fed(self) -> Course:
        """Behind what a loader had ready, which hides how slow it is."""
        if self.throws_away:
            self.anchors.skip_ready()
            yield
            yield

    def per_span(self) -> int:
        """Steps: loaders of several processes deliver by turns."""
        workers = getattr(self.anchors.loader, "num_workers", 0) if self.anchors.by_loader else 0
        most = max(self.ranks.gather(workers))  # of the ranks that read it
        return max(LEAST_STEPS, 2 * most) if self.step_s < LEAST_S else 2

    def observe(self) -> Course:
        """A step that is watched, and another for what watching leaves behind; once more where an
        evaluation came with it."""
        self.trained = self._trained()
        known = -1
        while known != self._asides():
            known = self._asides()
            observer = Observer()
            observer.begin()
            atexit.register(observer.end)  # torch crashes at an exit with its profiler on
            yield
            self.synchronize()
            atexit.unregister(observer.end)
            self.seen: Seen = observer.end()
            yield

    def _asides(self) -> int:
        """Evaluations so far, which some scripts leave to one rank."""
        return sum(self.ranks.gather(len(self.anchors.aside.every)))

    def live(self) -> Course:
        """A span as the script runs without us, told."""
        self.say.phase("measures steps as they are")
        yield from self.fed()
        yield from self.taken(self.per_span(), float(self.plan["live_s"]))
        if (now := self._trained()) != self.trained is not None:
            raise NeverFlat(
                f"the script trains {now:,} weights since step {self.anchors.steps} or before, and"
                f" {self.trained:,} ahead of it: have it begin with the phase that counts"
            )
        steps_s = [step_s for step_s, _ in self.times]
        self.say("live", steps_s=steps_s, waits_s=[wait_s for _, wait_s in self.times])

    def _trained(self) -> int:
        groups = (group for one in self.anchors.optimizers.values() for group in one.param_groups)
        weights = (one for group in groups for one in group["params"])
        return sum(weight.numel() for weight in weights if weight.requires_grad)

    def tell_facts(self) -> None:
        """What the script does, and what the probe costs it."""
        anchors = self.anchors
        self.say(
            "facts",
            anchor="loader" if anchors.by_loader else "optimizer",
            steps_before=self.flat_after,
            optimizers=[type(optimizer).__name__ for optimizer in anchors.optimizers.values()],
            loader=_loader_facts(anchors) if anchors.source is not None else None,
            batches_per_step=max(1, anchors.batches_count),
            compiled=self.seen.compiled,
            cudnn_search=torch.backends.cudnn.benchmark,
            convolutions=any("convolution" in name for name in self.seen.operators),
            notes=notes(self.seen),
            hooks_s=self.hooks_s,
            host=dict(self.seen.host),
            unset=unset(self.plan, anchors, self.seen.compiled)
            or exchange.unset(self.plan, self.seen),
            issued=self.seen.issued,
            ddp=exchange.facts(self.seen) or None,
        )


def _loader_facts(anchors: Anchors) -> dict[str, Any]:
    loader = anchors.source
    return {
        "workers": loader.num_workers,
        "prefetch": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "batch": batch_of(loader),
        "sampled": is_sampled(loader),
        "dealt": is_dealt(loader.dataset, loader.worker_init_fn),
        "threaded": not anchors.by_loader,
        "batches": length_of(loader),
        "starts_s": 0.0 if loader.persistent_workers else anchors.start_s,
    }
