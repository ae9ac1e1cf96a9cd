"""monitor/profiler: training steps while a profiler writes down what they do."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from gpulift_work.resting import Resting
from gpulift_work.training import Training, device_of, require_gpu_for, set_up, tokens_of_step
from gpulift_work.watchers import Program, interruptible
from gpulift_worker import Arm, Skip, scratch

TECHNIQUE = {
    "question": "What does it cost a training step that a profiler is on?",
    "expectation": """
        A window holds all that a profiler of torch's does, its start, its stop and the trace that
        it writes: 40 steps of a toy GPT, 20 of GPT-2. It writes 1 us an operation down as it goes,
        and 20 us when it stops, most of them for the trace's text. The toy has some 800 in a step
        of 5 ms: every_step 5 / (5 + 0.8 + 16) = 0.23. stacks has the calls of Python as well, some
        3,000 a step: 5 / (5 + 4 + 60) = 0.07. scheduled, as torchtitan has it, writes one step in
        ten down and warms up for three: 50 / (50 + 4 + 16 + 20 to start and stop) = 0.55. GPT-2,
        42 ms of an H100 for 4,000 operations: those hide behind the GPU, the trace does not:
        every_step 42 / (42 + 80) = 0.35, stacks 0.13, scheduled 420 / (420 + 80 + 20) = 0.8. py-spy
        stops the process for 0.3 ms at 100 Hz: 0.97 of the toy, and 1.0 of GPT-2. nsys traces calls
        of CUDA, 1 us for each of 113 or 840 launches and as many other calls; the report, which it
        would write when the training has ended, is left out: 0.95 and 1.0.
    """,
    "predict": [
        "bound:launches: scheduled 0.4-0.75, every_step 0.15-0.4, stacks 0.04-0.15,"
        " py_spy_100hz 0.92-1.0, nsys 0.88-1.0",
        "bound:gpu: scheduled 0.7-0.9, every_step 0.25-0.5, stacks 0.08-0.2,"
        " py_spy_100hz 0.98-1.01, nsys 0.97-1.01",
    ],
    "found": """
        The toy on an H100, one launch: scheduled 0.49, every_step 0.25, stacks 0.19. py-spy has
        0.82, not 0.97: 51 ms more for some 24 looks, 2 ms each, where 0.3 was thought enough.
    """,
    "arms": ["none", "scheduled", "every_step", "stacks", "py_spy_100hz", "nsys"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"bound": ["launches", "gpu"]},
    "check": {
        "meaning": "loss after the steps of a window, relative to the one without a profiler; "
        "exact on a processor",
        "tolerance": 0.0,
    },
}
MODELS = {"launches": "gpt_toy", "gpu": "gpt2"}
STEPS = {"launches": 40, "gpu": 20}  # of a window: whole cycles of the schedule
WAIT, WARM_UP, ACTIVE = 6, 3, 1  # steps of a cycle
GPU_TOLERANCE = 1e-2  # kernels that add in no order
ANY_TRACER = (0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
COUNTED = re.compile(r"Samples: (\d+) Errors: (\d+)")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is the training steps of a window, with all that the profiler does for them."""
    bound = str(point["bound"])
    model, steps = MODELS[bound], STEPS[bound]
    require_gpu_for(model, gpu)
    said: dict[str, Any] = {
        "tolerance": 0.0 if gpu is None else GPU_TOLERANCE,
        "items": steps * tokens_of_step(model),
        "item": "token",
    }
    if arm == "nsys":
        return Apart(nsys_command(), model, seed, gpu).arm(steps, said)
    device = device_of(gpu)
    threads = set_up(device)
    resting = Resting(model, device, seed)
    training = resting.training
    profiler = PROFILERS[arm](device)

    def step() -> None:
        profiler.run(training, steps)
        training.record()

    def rest() -> None:
        profiler.stop()
        resting.rest()

    return Arm(
        step=step,
        value=lambda: training.losses[-1],
        synchronize=training.synchronize,
        before=profiler.start,  # with it a window is one step of the arm
        rest=rest,
        wake=resting.wake,
        metrics=profiler.metrics,
        versions={"torch": str(torch.__version__)},
        notes={"device": device.type, "torch_threads": str(threads)},
        **said,
    )


def made_folder(name: str) -> Path:
    """One of this process, which is removed with the case's others."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=scratch()))


class Unprofiled:
    """Steps alone."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def start(self) -> None:
        """Ahead of a window."""

    def run(self, training: Training, steps: int) -> None:
        """A window."""
        for _ in range(steps):
            training.step()

    def stop(self) -> None:
        """Behind it."""

    def metrics(self) -> dict[str, float]:
        """Of the last window."""
        return {}


class TorchProfiler(Unprofiled):
    """torch's own, started and stopped within a window, where it writes its traces, too."""

    def __init__(
        self, device: torch.device, *, scheduled: bool = False, stacks: bool = False
    ) -> None:
        super().__init__(device)
        self._stacks = stacks
        self._schedule: Any = None
        if scheduled:
            self._schedule = torch.profiler.schedule(wait=WAIT, warmup=WARM_UP, active=ACTIVE)
        # That each cycle begins anew is what a schedule is for.
        warnings.filterwarnings("ignore", message="Warning: Profiler clears")
        self._folder = made_folder("traces")
        self._sizes: list[int] = []

    def run(self, training: Training, steps: int) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=self._schedule,
            on_trace_ready=torch.profiler.tensorboard_trace_handler(str(self._folder)),
            with_stack=self._stacks,
        ) as profile:
            for _ in range(steps):
                training.step()
                if self._schedule is not None:
                    profile.step()

    def stop(self) -> None:
        """Makes place for the traces of the next window."""
        traces = list(self._folder.iterdir())
        self._sizes = [trace.stat().st_size for trace in traces]
        for trace in traces:
            trace.unlink()

    def metrics(self) -> dict[str, float]:
        return {"traces_count": float(len(self._sizes)), "traces_bytes": float(sum(self._sizes))}


class PySpy(Unprofiled):
    """A process that looks at the stack of this one from outside, which it stops meanwhile."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        # Linux may let a process be looked at by its parents alone.
        ctypes.CDLL(None).prctl(*ANY_TRACER)
        command = f"py-spy record --pid {os.getpid()} --rate 100 --format raw --output {os.devnull}"
        self._program = Program(
            command.split(), "Sampling process", package="py-spy", remedy="allow it SYS_PTRACE"
        )

    def start(self) -> None:
        self._program.start()

    def stop(self) -> None:
        self._program.stop()

    def metrics(self) -> dict[str, float]:
        """How often it looked, and how often in vain."""
        counted = COUNTED.search(self._program.said)
        if counted is None:
            return {}
        looks, errors = map(float, counted.groups())
        return {"looks_count": looks, "errors_count": errors}


PROFILERS: Mapping[str, Callable[[torch.device], Unprofiled]] = {
    "none": Unprofiled,
    "scheduled": lambda device: TorchProfiler(device, scheduled=True),
    "every_step": TorchProfiler,
    "stacks": lambda device: TorchProfiler(device, stacks=True),
    "py_spy_100hz": PySpy,
}


# --- nsys, which has to start what it traces ---


def nsys_command() -> list[str]:
    """Raises Skip where it is not installed."""
    program = shutil.which("nsys")
    if program is None:
        raise Skip("nsys is not installed", "install nsight-systems-cli from NVIDIA's repository")
    return [program, "profile", "--trace=cuda,nvtx", "--sample=none", "--force-overwrite=true"]


class Apart:
    """A training in a process that another program starts, told what to do by lines."""

    def __init__(self, command: list[str], model: str, seed: int, gpu: int | None) -> None:
        output = f"--output={made_folder('report')}/report"
        script = [sys.executable, str(Path(__file__).resolve()), model, str(seed)]
        self._process = subprocess.Popen(
            [*command, output, *script, "" if gpu is None else str(gpu)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=interruptible(os.getpid()),  # no report is written beside other cases
        )
        self._losses: list[float] = []
        try:
            self.ask("wake")
        except RuntimeError as error:
            name = Path(command[0]).name
            raise Skip(
                f"{name} does not start a training: {error}", f"see what {name} says"
            ) from error

    def arm(self, steps: int, said: Mapping[str, Any]) -> Arm:
        """Its windows."""
        return Arm(
            step=lambda: self._losses.append(float(self.ask(f"steps {steps}"))),
            value=lambda: self._losses[-1],
            before=lambda: self.ask("wake"),
            rest=lambda: self.ask("rest"),
            notes={"report": "not written: that would be at the end of the training"},
            **said,
        )

    def ask(self, what: str) -> str:
        """The answer, once it is done. Raises RuntimeError where there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        said = ""
        try:
            print(what, file=self._process.stdin, flush=True)
            for line in self._process.stdout:  # the program's own lines, too
                word, _, said = line.strip().partition(" ")
                if word == "answer":
                    return said
                said = line.strip()
        except BrokenPipeError:
            pass
        raise RuntimeError(said or "its process ended")


def answer_lines(model: str, seed: int, gpu: int | None) -> None:
    """The training's side, until nobody asks."""
    device = device_of(gpu)
    set_up(device)
    resting = Resting(model, device, seed)
    training = resting.training
    for line in sys.stdin:
        word, _, count = line.partition(" ")
        said = ""
        if word == "steps":
            for _ in range(int(count)):
                training.step()
            training.record()
            said = str(training.losses[-1])
        else:
            {"rest": resting.rest, "wake": resting.wake}[word.strip()]()
        print("answer", said, flush=True)


if __name__ == "__main__":
    asked_model, asked_seed, asked_gpu = sys.argv[1:]
    answer_lines(asked_model, int(asked_seed), int(asked_gpu) if asked_gpu else None)
