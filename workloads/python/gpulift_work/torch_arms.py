"""Arms that train a model eager or in a mode of torch.compile, and what compiling cost them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from time import monotonic

import torch
from gpulift_worker import Arm, Failed, check_seed, spent

from gpulift_work import repeats
from gpulift_work.first_steps import Bounds, exact_steps, gaps_between, total
from gpulift_work.references import NOTE, DamagedError, Reference, shared_reference, source_of
from gpulift_work.repeats import norm_of_gradients
from gpulift_work.training import (
    COLD_STEPS,
    TWINS,
    Training,
    arm_on,
    device_of,
    free_memory,
    keep_the_compiler_quiet,
    largest_deviation,
    memory_of_step,
    require_compiler,
    set_up,
    use_cache_of_run,
)

CHECKED_STEPS = 5
SAID = f"losses of {CHECKED_STEPS} steps and the first gradients, against TF32 where it is in BF16"
# Of BF16, on a host: gradients of ResNet-50 (4 images) are 0.064 off, of the perceptron 0.027, of
# gpt_small 0.008; a parameter's cosine is 0.979 at least, norms are 0.02 off at most, and that of
# all 0.0004. A halved gradient of a layer has a norm of 0.5. No host has an LSTM in BF16.
GRADIENT_TOLERANCE = 0.15
BOUNDS = Bounds(cosine=0.9, norm=0.1, norm_of_all=0.03)


def make_arm(name: str, seed: int, gpu: int | None, mode: str, *, always_cold: bool = False) -> Arm:
    """An arm that trains a model, eager or in a mode of torch.compile. It compiles from cold caches
    where it is checked whole, or in each launch, and its metrics then say what that cost."""
    device = device_of(gpu)
    cold = bool(mode) and (always_cold or repeats.expected() is None)
    if mode:
        require_compiler(device)
        keep_the_compiler_quiet()
        use_cache_of_run(f"{name}-{mode}", cold=cold)
    threads = set_up(device)
    eager_step_s = _eager_step_s(name, device, seed) if cold else 0.0
    job = Job(name, device, mode)
    job.take_first_steps()

    def metrics() -> dict[str, float]:
        found = {**memory_of_step(job.training), **job.facts}
        if cold:
            step_s = job.training.step_time_s()
            found |= compilation(job.cold_start_s, eager_step_s, step_s)
        return found

    return arm_on(
        device,
        threads,
        step=job.training.step,
        error=lambda: job.error(seed),
        metrics=metrics,
        notes=job.notes,
    )


class Job:
    """A training from the seed of the first launch. In that launch it is held against eager steps,
    in TF32 where it is in BF16 itself; in later ones against those of the first launch."""

    def __init__(self, name: str, device: torch.device, mode: str) -> None:
        self.name, self.device, self.compiles = name, device, bool(mode)
        self.earlier = repeats.expected()
        self.notes = {"check": repeats.SAID} if self.earlier else {"whole_check": SAID}
        self.facts: dict[str, float] = {}
        self.cold_start_s = 0.0
        # Before the training, which may need the memory: what arms share is not on the card.
        self.exact = None if self.earlier else self.reference()
        with device:
            self.training = Training(name, device, check_seed(), mode=mode)

    def reference(self) -> Reference:
        """That of the case, which its first arm computes."""
        return shared_reference(
            self.own_reference,
            self.device,
            self.notes,
            source=source_of(__file__),
            of=f"{CHECKED_STEPS} steps",
            model=self.name,
            seed=check_seed(),
        )

    def own_reference(self) -> Reference:
        """The same, computed by this arm."""
        tf32 = TWINS[self.name].bf16  # with FP32 it would be what deviates
        return exact_steps(self.name, self.device, check_seed(), CHECKED_STEPS, tf32=tf32)

    def take_first_steps(self) -> None:
        """What compiles and warms up. Failed where the gradients of the first are others."""
        training = self.training
        with self.timed():
            training.make_gradients()
            training.synchronize()
        norm = norm_of_gradients(training)
        if self.exact:
            self.check_gradients(self.exact)
            free_memory(self.device)  # of what was not shared
        with self.timed():
            training.update()
            training.record()
            training.train_until(COLD_STEPS)
        self.facts |= repeats.found_of(training, norm, {"inputs": training.input.numel()})

    def check_gradients(self, exact: Reference) -> None:
        """Against those of the exact model, of which only losses are kept."""
        try:
            gaps = gaps_between(self.training, exact.gradients)
        except DamagedError as damaged:
            self.notes[NOTE] = f"an arm's own: {damaged}"
            gaps = gaps_between(self.training, self.own_reference().gradients)
        BOUNDS.check(gaps)
        distance = total(gaps).distance
        if not distance <= GRADIENT_TOLERANCE:
            raise Failed(f"gradients are {distance:.2g} from those of eager steps")
        self.facts["gradient_error"] = distance
        self.exact = Reference(exact.losses, ())

    def error(self, seed: int) -> float:
        """Of the losses, relative to the first; then the training goes on from this seed."""
        if self.earlier:
            apart = repeats.deviation(self.facts, self.earlier)
        else:
            assert self.exact is not None
            self.training.record()  # of the step that was taken between
            self.training.train_until(CHECKED_STEPS)
            apart = largest_deviation(self.training.losses, list(self.exact.losses))
        if seed != check_seed():
            restart(self.training, self.name, seed)
        return apart

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """What is within counts to the cold start, and is waited for."""
        start_s = monotonic()
        with spent("compile") if self.compiles else contextlib.nullcontext():
            yield
        self.cold_start_s += monotonic() - start_s


def restart(training: Training, name: str, seed: int) -> None:
    """With the weights and data of another seed where its own are, which graphs replay, and a step
    behind it, so that the optimizer's state is there."""
    with training.device:
        fresh = Training(name, training.device, seed)
    training.model.load_state_dict(fresh.model.state_dict())
    training.input.copy_(fresh.input)
    training.target.copy_(fresh.target)
    training.optimizer.state.clear()
    del fresh
    free_memory(training.device)
    training.step()


def compilation(cold_start_s: float, eager_step_s: float, step_s: float) -> dict[str, float]:
    """What compiling cost, and how often it happened. Break-even only where steps got shorter."""
    from torch._dynamo.utils import counters, get_compilation_metrics

    recompiled = [one for one in get_compilation_metrics() if one.recompile_reason]
    found = {
        "cold_start_s": cold_start_s,
        "graph_breaks": float(sum(counters["graph_break"].values())),
        "recompiles": float(len(recompiled)),
    }
    if step_s < eager_step_s:
        found["break_even_steps"] = cold_start_s / (eager_step_s - step_s)
    return found


def _eager_step_s(name: str, device: torch.device, seed: int) -> float:
    """What a step takes that is not compiled, in this process; leaves nothing behind."""
    training = Training(name, device, seed)
    training.train_until(COLD_STEPS)
    step_s = training.step_time_s()
    del training
    free_memory(device)
    return step_s
