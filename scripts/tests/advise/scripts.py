"""Training scripts with the probe in them, in this process and in ones of their own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpulift.advise.evidence import BASELINE, Process, read_process
from tests.conftest import CHECKOUT

torch = pytest.importorskip("torch")

from gpulift_probe import anchors, replay, span, windows  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

INJECT = CHECKOUT / "scripts" / "gpulift" / "advise" / "inject"
# As few steps as may be, and the first spans are flat: what is told depends on no clock.
PLAN: dict[str, Any] = {
    "only": None,
    "without": [],
    "flat_s": 600.0,
    "live_s": 0.0,
    "windows_s": 0.0,
}
SHORT = """\
import math
from gpulift_probe import span, windows
span.LEAST_S, span.FLAT, windows.WINDOW_S = 0.0, math.inf, 1e-9
"""
# Prints the loss of each step.
TRAINING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1))
rows = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(rows, batch_size=16, shuffle=True, num_workers=WORKERS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(EPOCHS):
    for inputs, targets in loader:
        BEFORE
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        print(loss.item(), flush=True)
"""
SERVER = """\
import json, os, runpy, sys
import torch, torch._dynamo, gpulift_probe
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        os.environ.update(job["own"])
        for stream, file in enumerate(job["files"], 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
        gpulift_probe.start()
        runpy.run_path(job["script"], run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
SCRIPT, SAID = "train.py", "said.jsonl"


def training(epochs: int, workers: int = 0, before: str = "pass") -> str:
    """The text of a script, with what it does ahead of each step."""
    text = TRAINING.replace("EPOCHS", str(epochs)).replace("WORKERS", str(workers))
    return text.replace("BEFORE", before)


@dataclass
class Ended:
    """A script's process, and what the probe said in it."""

    said: Process
    code: int
    printed: list[str]
    error: str


def prepared(folder: Path, text: str, mode: str, **plan: Any) -> dict[str, str]:
    """Writes a script that imports torch in its first line; the environment of its process."""
    first, rest = text.split("\n", 1)
    (folder / SCRIPT).write_text(f"{first}\n{SHORT}{rest}", encoding="utf-8")
    return {
        "GPULIFT_ADVISE": json.dumps({"mode": mode, **PLAN, **plan}),
        "GPULIFT_ADVISE_SAID": str(folder / SAID),
    }


def ended(folder: Path, code: int, printed: str, error: str) -> Ended:
    """With what was said."""
    said = read_process(BASELINE, 1, folder / SAID)
    return Ended(said, code, printed.splitlines(), error)


def run(folder: Path, text: str, mode: str, **plan: Any) -> Ended:
    """A process as `gpulift advise` starts it."""
    own = prepared(folder, text, mode, **plan)
    process = subprocess.run(
        [sys.executable, str(folder / SCRIPT)],
        env={**os.environ, "PYTHONPATH": str(INJECT), **own},
        text=True,
        capture_output=True,
        check=False,
    )
    return ended(folder, process.returncode, process.stdout, process.stderr)


class Forks:
    """Processes that have torch already, whose import takes longer than all that they do."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env={**os.environ, "PYTHONPATH": str(INJECT)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, folder: Path, text: str, mode: str, **plan: Any) -> Ended:
        """As `run`, but that the probe is started behind torch's import."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        own = prepared(folder, text, mode, **plan)
        files = folder / "printed", folder / "error"
        job = {"own": own, "files": list(map(str, files)), "script": str(folder / SCRIPT)}
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return ended(folder, code, *(file.read_text("utf-8") for file in files))

    def close(self) -> None:
        """Ends the process that they come of."""
        self._server.communicate()


class Messages:
    """What a probe in this process says, instead of writing it into a file."""

    def __init__(self) -> None:
        self.every: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: str, **values: Any) -> None:
        self.every.append((kind, values))

    def owns(self) -> bool:
        """It is the only one."""
        return True

    def phase(self, text: str) -> None:
        """Nobody waits."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Those of one kind."""
        return [values for own, values in self.every if own == kind]


def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Courses in this process take as few steps as may be."""
    monkeypatch.setattr(span, "LEAST_S", 0.0)
    monkeypatch.setattr(span, "FLAT", math.inf)
    monkeypatch.setattr(windows, "WINDOW_S", 1e-9)
    monkeypatch.setattr(replay, "SLOW_S", math.inf)


def unhooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a probe hooks in this process is behind the test as it was."""
    patched = (
        (DataLoader, "__iter__"),
        (torch.autograd, "backward"),
        (torch.amp.GradScaler, "step"),
        (nn.Module, "eval"),
        (nn.Module, "train"),
    )
    for owner, name in patched:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    hooks = "_global_optimizer_post_hooks"
    monkeypatch.setattr(sys.modules["torch.optim.optimizer"], hooks, OrderedDict())


class Training:
    """A model, what it learns from, and a probe that goes along with its steps."""

    def __init__(self, model: Any, rows: int = 64, batch: int = 16, lr: float = 0.01) -> None:
        self.model = model
        self.factor = 1.0  # of the loss
        dataset = TensorDataset(torch.randn(rows, 4), torch.randn(rows, 4))
        self.loader = DataLoader(dataset, batch_size=batch)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.said = Messages()
        self.anchors = anchors.Anchors(self.said)
        self.over = False

    def follow(self, course: Iterator[None]) -> None:
        """Has it go on with each step, from the second on."""

        def steps() -> Any:
            yield
            yield from course
            self.over = True

        self.anchors.follow(steps())

    def batches(self) -> Iterator[Any]:
        """Epochs, until the course is over."""
        while not self.over:
            yield from self.loader

    def step(self, inputs: Any, targets: Any) -> float:
        """One; its loss."""
        self.optimizer.zero_grad()
        loss = self.factor * nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())
