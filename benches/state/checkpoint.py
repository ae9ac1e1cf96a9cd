"""What a checkpoint costs a training run: written in one go, behind it, or in shards."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import torch
from gpulift_files import disk_facts
from gpulift_work.checkpoint import (
    Checkpoints,
    Saving,
    bytes_of,
    differing_bytes,
    make_saving,
    state_of,
)
from gpulift_work.training import (
    GPT_SIZES,
    TWINS,
    Training,
    device_of,
    free_memory,
    memory_of_step,
    set_up,
)
from gpulift_worker import Arm, Skip, scratch

TECHNIQUE = {
    "question": "What does a durable checkpoint cost the training steps after it: written in one "
    "go, behind the training, or in four files at once?",
    "expectation": "A step is one save and the training steps until the next. GPT-2: 124 M x "
    "(4 + 4 + 4) bytes = 1.49 GB; at 1.5 GB/s, durable, 1.0 s. 20 steps of 36 to 71 ms are 0.7 to "
    "1.4 s: synchronous 0.42 to 0.59 of the speed without checkpoints. A snapshot blocks for "
    "1.49 GB / 55 GB/s = 27 ms, 30 times less: 0.96 to 0.98, if the thread that writes takes "
    "nothing from the training. sharded_4: one disk, whose saves are 1.0 to 1.3 times as fast as "
    "in one file: 0.42 to 0.65. The toy GPT on a CPU: 0.106 M x 12 bytes = 1.3 MB, so that three "
    "flushes of the disk of 1 ms and 112 small tensors in Python, 3 ms, are all: 0.8 of 5 steps of "
    "5 ms; behind the training 0.95; in four files, with six flushes, 0.75. A window is one save "
    "and the training steps after it, and what an asynchronous save still writes then is waited "
    "for outside of it, so that the window is the hold-up of a run that saves less often than its "
    "disk writes; durable_s beside the window says whether the disk keeps up at this cadence.",
    "predict": [
        {
            "case": {"model": "gpt2"},
            "speedup": {
                "synchronous": [0.42, 0.59],
                "snapshot_thread": [0.96, 0.98],
                "sharded_4": [0.42, 0.65],
            },
        },
        {
            "case": {"model": "gpt_toy"},
            "on": "cpu",
            "speedup": {
                "synchronous": [0.72, 0.88],
                "snapshot_thread": [0.855, 1.045],
                "sharded_4": [0.675, 0.825],
            },
        },
    ],
    "found": (
        "The disk of that H100's host writes 0.69 GB/s, durable, not 1.5: a synchronous save of "
        "GPT-2 takes 2.2 s beside 20 steps of 0.85 s in all. One launch."
    ),
    "claims": ["checkpoint-behind-training-faster"],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["none", "synchronous", "snapshot_thread", "sharded_4"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"]},
    "quick": [],
    "check": {
        "meaning": "bytes of the state at the call that differ on the disk",
        "tolerance": 0,
    },
}
STEPS = {"gpt2": 20, "gpt_toy": 5}  # of training between two saves
SAVES = 5  # of which the metrics are the median


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A save and the training steps after it, which change what is being saved."""
    name = str(point["model"])
    if name == "gpt2" and gpu is None:
        raise Skip("a training step of GPT-2 takes seconds on a processor", "use a GPU")
    device = device_of(gpu)
    threads = set_up(device)
    training = Training(name, device, seed)
    training.step()  # an optimizer has no moments before its first step
    state = state_of(training)
    saving, checkpoints = make_saving(arm, folder_for(arm, bytes_of(state)), state)
    saves = arm != "none"
    expected = {key: one.clone() for key, one in state.items()} if saves else {}

    def step() -> None:
        if saves:
            saving.save(state_of(training))
        for _ in range(STEPS[name]):
            training.step()

    def error() -> float:
        wrong_bytes = differing_bytes(expected, checkpoints.load())
        expected.clear()
        free_memory(device)
        return float(wrong_bytes)

    def metrics() -> dict[str, float]:
        found = memory_of_step(training)
        return {**found, **cost_of_save(training, saving, checkpoints)} if saves else found

    return Arm(
        step=step,
        error=error,
        synchronize=training.synchronize,
        before=checkpoints.remove,  # or it would be removed within the window
        rest=saving.wait,
        versions={"torch": str(torch.__version__)},
        notes={"device": device.type, "torch_threads": str(threads)},
        metrics=metrics,
        items=STEPS[name] * TWINS[name].batch * GPT_SIZES[name].tokens,
        item="token",
    )


def folder_for(arm: str, state_bytes: int) -> Path:
    """An empty folder of this arm on a disk that holds four checkpoints: one of each of the three
    arms that save, and one that is being written before an earlier one goes."""
    folder = scratch()
    if disk_facts(folder)["in_memory"]:
        raise Skip("the scratch folder is in memory", "name one on a disk: --scratch DIR")
    needed_bytes = 4 * state_bytes
    if shutil.disk_usage(folder).free < needed_bytes:
        raise Skip(
            f"the disk of the scratch folder has less than {needed_bytes / 1e6:.0f} MB free",
            "free some space, or name another disk: --scratch DIR",
        )
    own = folder / arm
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    return own


def cost_of_save(training: Training, saving: Saving, checkpoints: Checkpoints) -> dict[str, float]:
    """How long the call blocks, how long until the state is durable, and how much that is; with no
    training beside it."""
    blocked_s, durable_s = [], []
    for _ in range(SAVES):
        checkpoints.remove()
        training.synchronize()
        start_s = monotonic()
        saving.save(state_of(training))
        blocked_s.append(monotonic() - start_s)
        saving.wait()
        durable_s.append(monotonic() - start_s)
    written_bytes = checkpoints.bytes_on_disk()
    return {
        "blocked_s": statistics.median(blocked_s),
        "durable_s": statistics.median(durable_s),
        "checkpoint_bytes": float(written_bytes),
        "write_bytes_per_s": written_bytes / statistics.median(durable_s),
    }
