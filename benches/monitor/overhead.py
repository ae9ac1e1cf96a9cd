"""monitor/overhead: training steps while something reads the GPU's counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpulift_work.resting import Resting
from gpulift_work.training import device_of, set_up, tokens_of_step
from gpulift_work.watchers import Poller, Program, gpm, nvml
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What does it cost a training step that others read the GPU's counters meanwhile?",
    "expectation": """
        All arms, none as well, are read 50 times a second by gpulift itself, for the clocks and the
        power of each window: what a monitor costs comes on top of that. It is a process of its own,
        and each look takes the driver's locks for part of its time: six counters of NVML 0.2 ms,
        GPM 0.5 ms, nvidia-smi, which asks for the same once more each time, 10 ms, DCGM, whose
        daemon collects the counters of all GPUs, 1 ms. If a look held all launches up for that
        long, NVML would cost 0.02, 0.2 and 2 % at 1, 10 and 100 Hz, GPM at 10 Hz 0.5, nvidia-smi at
        1 Hz 1 and DCGM at 10 Hz 1. A toy GPT's launches set its pace: half of that, 0.99 to 1 at
        100 Hz, else 0.99 to 1.01. GPT-2's 840 launches run ahead of 42 ms of the GPU: 1.0. A window
        is a second: a monitor of 1 Hz looks once in each, in its midst, and none more or less than
        its rate. Seven arms take 14 s a block and four blocks a launch; where windows of one arm
        differ by 1 %, eight of them against eight tell 0.5 % apart, three launches 0.3. What is
        less is told as an upper bound by looking_share: the share of the time that looks take.
    """,
    "predict": [
        "bound:launches: nvml_1hz 0.99-1.01, nvml_10hz 0.99-1.01, nvml_100hz 0.98-1,"
        " gpm_10hz 0.99-1.01, nvidia_smi_1hz 0.985-1.01, dcgm_10hz 0.985-1.01",
        "bound:gpu: nvml_1hz 0.995-1.005, nvml_10hz 0.995-1.005, nvml_100hz 0.99-1.005,"
        " gpm_10hz 0.99-1.005, nvidia_smi_1hz 0.99-1.005, dcgm_10hz 0.99-1.005",
    ],
    "gpus": 1,
    "arms": [
        "none",
        "nvml_1hz",
        "nvml_10hz",
        "nvml_100hz",
        "gpm_10hz",
        "nvidia_smi_1hz",
        "dcgm_10hz",
    ],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"bound": ["launches", "gpu"]},
    "check": {
        "meaning": "loss after the steps of a window, relative to that without a monitor",
        "tolerance": 0.01,
    },
}
MODELS = {"launches": "gpt_toy", "gpu": "gpt2"}
STEPS = {"launches": 200, "gpu": 24}  # of a window: a second of an H100
QUERY = "--query-gpu=utilization.gpu,memory.used,power.draw,temperature.gpu,clocks.sm"
# Of DCGM's fields: SM activity, its occupancy, tensor cores, memory; power.
FIELDS = "1002,1003,1004,1005,155"
POLLERS: Mapping[str, Callable[[], Poller]] = {
    "nvml_1hz": lambda: Poller(nvml, 1),
    "nvml_10hz": lambda: Poller(nvml, 10),
    "nvml_100hz": lambda: Poller(nvml, 100),
    "gpm_10hz": lambda: Poller(gpm, 10),
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is as many training steps as last a second, watched from end to end."""
    bound = str(point["bound"])
    poller = POLLERS[arm]() if arm in POLLERS else None
    device = device_of(gpu)
    uuid = uuid_of(gpu)
    watcher = poller or program(arm, uuid)
    threads = set_up(device)
    if poller is not None:
        poller.open(uuid)
    resting = Resting(MODELS[bound], device, seed)
    training = resting.training

    def step() -> None:
        for _ in range(STEPS[bound]):
            training.step()
        training.record()

    def rest() -> None:
        if watcher is not None:
            watcher.stop()
        resting.rest()

    return Arm(
        step=step,
        value=lambda: training.losses[-1],
        synchronize=training.synchronize,
        before=training.synchronize if watcher is None else watcher.start,
        rest=rest,
        wake=resting.wake,
        metrics=dict if watcher is None else watcher.metrics,
        items=STEPS[bound] * tokens_of_step(MODELS[bound]),
        item="token",
        versions={"torch": str(torch.__version__)},
        notes={"device": device.type, "torch_threads": str(threads)},
    )


def program(arm: str, uuid: str) -> Program | None:
    """That watches; none for the baseline."""
    if arm == "nvidia_smi_1hz":
        return Program(
            ["nvidia-smi", f"--id={uuid}", QUERY, "--format=csv,noheader", "--loop=1"],
            r"^(\d+ %|\[)",  # [N/A] where a GPU is in parts
            package="the driver's programs",
            remedy="see what nvidia-smi says",
            period_s=1,
        )
    if arm == "dcgm_10hz":
        return Program(
            ["dcgmi", "dmon", "--field-id", FIELDS, "--delay", "100"],
            r"^GPU \d",
            package="datacenter-gpu-manager from NVIDIA's repository",
            remedy="start nv-hostengine",
            period_s=0.1,
        )
    return None


def uuid_of(gpu: int | None) -> str:
    """What NVML calls the GPU; empty where there is none."""
    properties: Any = None if gpu is None else torch.cuda.get_device_properties(gpu)
    return "" if properties is None else f"GPU-{properties.uuid}"
