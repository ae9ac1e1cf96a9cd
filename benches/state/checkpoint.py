"""state/checkpoint: what durable checkpoints cost a training, at a pace that the disk can follow,
and at one that it cannot."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from gpulift_files import evict
from gpulift_work.checkpoint import (
    Dcp,
    DcpAsync,
    Manner,
    State,
    TorchSave,
    bytes_of,
    differing_bytes,
    on_host,
    state_of,
    written_or_said,
)
from gpulift_work.resting import Resting
from gpulift_work.samples import folder_for
from gpulift_work.training import (
    Training,
    device_of,
    free_memory,
    memory_of,
    require_gpu_for,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm, Skip, earlier, scratch

TECHNIQUE = {
    "question": "How long does a training stand still for a durable checkpoint: saved by "
    "torch.save, by torch.distributed.checkpoint, or by its async_save?",
    "expectation": """
        A step is a save, the training steps until the next, and the wait until the save is durable
        and the checkpoint before it removed: what a run pays from save to save, at either pace. All
        arms flush files and names. W is how long a durable torch.save takes. keeps_up: as many
        training steps as last 1.25 W, rounded up to two digits, 1.25 to 1.38 W; falls_behind: a
        quarter, 0.31 to 0.35 W. torch_save takes both after one another; async_save the longer one,
        and a copy to pinned memory at 50 GB/s: keeps_up 2.25 / 1.25 to 2.4 / 1.4, 1.7 to 1.8, less
        a tenth where the thread that writes takes the training's Python time; falls_behind 1.31 to
        1.35. dcp writes to the same disk, with the same checksums, and copies from the GPU ahead:
        0.95 to 1.15. llama_1b: 1.236 G x 12 bytes = 14.8 GB, at 0.7 GB/s 21 s, copied in 0.3 s; 140
        steps of 0.19 s. GPT-2: 1.49 GB, 2.1 s, 30 ms; 63 steps of 42 ms. Stood still a save:
        torch_save W; async_save the copy, and behind a disk that cannot follow 0.65 to 0.7 W more.
        The toy on processors: 1.3 MB in 112 tensors, some 8 ms in torch.save, 35 ms of plans and
        pickles in DCP; 20 steps of 5 ms, or 1: dcp 0.8 and 0.3; async_save, whose thread is
        Python's as the steps are, 0.8 to 1.0 and 0.3.
    """,
    "predict": [
        "model:llama_1b/cadence:keeps_up: dcp 0.95-1.15, dcp_async 1.6-1.8",
        "model:gpt2/cadence:keeps_up: dcp 0.95-1.15, dcp_async 1.5-1.8",
        "model:llama_1b/cadence:falls_behind: dcp 0.95-1.15, dcp_async 1.25-1.45",
        "model:gpt2/cadence:falls_behind: dcp 0.95-1.15, dcp_async 1.25-1.45",
        "model:gpt_toy/cadence:keeps_up @cpu: dcp 0.7-0.9, dcp_async 0.75-1.0",
        "model:gpt_toy/cadence:falls_behind @cpu: dcp 0.25-0.4, dcp_async 0.25-0.4",
    ],
    "claims": ["checkpoint-behind-training-faster"],
    "whole_steps": True,
    "arms": ["torch_save", "dcp", "dcp_async", "none"],
    "controls": ["none"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {
        "model": ["llama_1b", "gpt2", "gpt_toy"],
        "cadence": ["keeps_up", "falls_behind"],
    },
    "check": {
        "meaning": "bytes of the state at the call that differ once it is restored to a new model",
        "tolerance": 0,
    },
}
SLACK = 1.25  # training between two saves over writing one, where the disk keeps up
BEHIND = 4  # times as many saves are more than it can follow
# A toy's saves are next to nothing, and would give another number in each launch.
TOY_STEPS = {"keeps_up": 20, "falls_behind": 1}
MEASURED_STEPS = 5
SPACE = 2  # checkpoints of all arms: one that is whole, and one that is being written
COPIES = 3  # of the state in the host's memory: to compare with, what is loaded, async_save's
MANNERS: Mapping[str, Callable[[Path, bool], Manner]] = {
    "torch_save": lambda folder, _: TorchSave(folder),
    "dcp": lambda folder, _: Dcp(folder),
    "dcp_async": lambda folder, on_gpu: DcpAsync(folder, pinned=on_gpu),
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A save, the training steps until the next, which change what is being saved, and the wait."""
    name, cadence = str(point["model"]), str(point["cadence"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    resting = Resting(name, device, seed)
    training = resting.training
    training.step()  # an optimizer has no moments before its first step
    state_bytes = bytes_of(state_of(training))
    require_memory(COPIES * state_bytes)
    # Shared, so that each arm removes a checkpoint of another one's, of the same size.
    folder = folder_for("checkpoints", SPACE * state_bytes)
    pace = Pace(name, cadence, training, folder)
    manner = None if arm == "none" else MANNERS[arm](folder, device.type == "cuda")
    expected = {} if manner is None else on_host(state_of(training))
    told: dict[str, float] = {}

    def step() -> None:
        if manner is None:
            pace.train(training)
        else:
            told.update(saved(manner, training, pace))

    def error() -> float:
        if manner is None:
            return 0.0
        wrong_bytes, told["restore_s"] = restored(manner, expected, Resting(name, device, seed ^ 1))
        expected.clear()
        free_memory(device)
        return float(wrong_bytes)

    def metrics() -> dict[str, float]:
        resting.wake()
        training.synchronize()
        found = {**memory_of(step, device), **pace.facts, **told}  # of a second save
        return found if manner is None else {**found, **on_disk(manner, told["durable_s"])}

    return Arm(
        step=step,
        error=error,
        synchronize=training.synchronize,
        before=training.synchronize,  # with it a window is one step, of seconds, without a lead-in
        rest=resting.rest,
        wake=resting.wake,
        notes={
            "cadence": f"a save every {pace.steps} steps",
            "device": device.type,
            "torch_threads": str(threads),
        },
        metrics=metrics,
        bytes=0.0 if manner is None else float(state_bytes),  # a building block: saves set the pace
        items=pace.steps * tokens_of_step(name),
        item="token",
    )


class Pace:
    """How many training steps there are from save to save, the same for all arms and launches of a
    case."""

    def __init__(self, name: str, cadence: str, training: Training, folder: Path) -> None:
        self.facts: dict[str, float] = {}
        if name.endswith("toy"):
            self.steps = TOY_STEPS[cadence]
            return
        file = scratch() / "measured.json"
        if not file.exists():  # the first arm measures for all, in the first launch
            known = earlier() or {
                "training_step_s": training.step_time_s(MEASURED_STEPS),
                "torch_save_s": seconds_to_save(training, folder),
            }
            file.write_text(json.dumps([known["training_step_s"], known["torch_save_s"]]))
        step_s, save_s = json.loads(file.read_text())
        self.steps = steps_between(cadence, step_s, save_s)
        self.facts = {"training_step_s": step_s, "torch_save_s": save_s}

    def train(self, training: Training) -> None:
        """Until the next save is due."""
        for _ in range(self.steps):
            training.step()
        training.synchronize()


def seconds_to_save(training: Training, folder: Path) -> float:
    """Durably, by torch.save."""
    start_s = monotonic()
    with written_or_said():
        TorchSave(folder).save(state_of(training))
    return monotonic() - start_s


def steps_between(cadence: str, step_s: float, save_s: float) -> int:
    """Two saves, from the time of a training step and of a save; rounded up to two digits."""
    steps = SLACK * save_s / step_s
    unit = max(1.0, 10.0 ** (math.floor(math.log10(steps)) - 1))
    keeps_up = math.ceil(steps / unit) * int(unit)
    return keeps_up if cadence == "keeps_up" else max(1, keeps_up // BEHIND)


def saved(manner: Manner, training: Training, pace: Pace) -> dict[str, float]:
    """A save with the training behind it: how long that stood still for it, and how long until
    the state was durable."""
    with written_or_said():
        start_s = monotonic()
        manner.save(state_of(training))
        blocked_s = monotonic() - start_s
        pace.train(training)
        trained_s = monotonic()
        manner.wait()
        waited_s = monotonic() - trained_s
    return {
        "blocked_s": blocked_s,
        "stood_still_s": blocked_s + waited_s,
        "durable_s": manner.checkpoints.durable_s - start_s,
    }


def on_disk(manner: Manner, durable_s: float) -> dict[str, float]:
    """What was written, and how fast."""
    written_bytes = float(sum(one.stat().st_size for one in manner.checkpoints.files()))
    return {"checkpoint_bytes": written_bytes, "write_bytes_per_s": written_bytes / durable_s}


def restored(manner: Manner, expected: State, fresh: Resting) -> tuple[int, float]:
    """Bytes that differ once the checkpoint is in another model and optimizer, on the training's
    device, and how long it took to get there from the disk."""
    training = fresh.training
    training.step()  # makes the moments
    targets = state_of(training)
    evict(manner.checkpoints.files())
    training.synchronize()
    start_s = monotonic()
    manner.restore(targets)
    training.synchronize()
    restore_s = monotonic() - start_s
    return differing_bytes(expected, state_of(training)), restore_s


def require_memory(needed_bytes: int) -> None:
    """Of the host. Raises Skip where there is less."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:") and 1024 * int(line.split()[1]) < needed_bytes:
            raise Skip(
                f"copies of the state need {needed_bytes / 1e6:.0f} MB of the host's memory",
                "use a machine with more, or a smaller model: gpt2, gpt_toy",
            )
