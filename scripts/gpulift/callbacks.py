"""Step times of a training of yours, for `gpulift history`: a point for each training.

    times = StepTimes("train.py/step")
    trainer = Trainer(..., callbacks=[times.for_transformers()])  # Hugging Face
    trainer = Trainer(..., callbacks=[times.for_lightning()])     # Lightning
    for batch in loader:                                          # or a loop of your own
        train(batch)
        times.step()
    times.close()

    gpulift history show

A point is the mean time of all steps after the first few, as a clock on the wall tells it: what
lies between steps, such as evaluating, counts. Of Lightning a batch is a step. Rank 0 writes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpulift.ground.entry import say
from gpulift.records.model import slug

FILE = "history.jsonl"  # as gate/history.py reads it


class StepTimes:
    """Counts steps; `close` adds the mean of those after the first `skip` to the history."""

    def __init__(self, row: str, folder: Path | str = "gpulift-history", skip: int = 10) -> None:
        if not row or skip < 1:
            raise ValueError("a row has a name, and at least the first step is skipped")
        self.row, self.file, self.skip = row, Path(folder) / FILE, skip
        self.steps, self.began_s = 0, 0.0

    def step(self) -> None:
        """A step has ended."""
        self.steps += 1
        if self.steps == self.skip:
            self.began_s = _device_time_s()

    def close(self) -> None:
        """All have; begins anew."""
        timed, self.steps = self.steps - self.skip, 0
        if os.environ.get("RANK", "0") != "0":
            return
        if timed < 1:
            say(f"{self.row}: no step after the first {self.skip}: nothing is added to {self.file}")
            return
        point = {
            "row": self.row,
            "value": (_device_time_s() - self.began_s) / timed,
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "commit": _commit(),
            "machine": _machine(),
            "unit": "s",
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")

    def for_transformers(self) -> Any:
        """A callback of Hugging Face's Trainer."""
        from transformers import TrainerCallback

        names = {"on_step_end": self.step, "on_train_end": self.close}
        return _callback(TrainerCallback, names)

    def for_lightning(self) -> Any:
        """A callback of Lightning's Trainer."""
        from lightning.pytorch import Callback

        names = {"on_train_batch_end": self.step, "on_train_end": self.close}
        return _callback(Callback, names)


def _callback(base: type, calls: dict[str, Any]) -> Any:
    made = {name: lambda *_, call=call, **__: call() for name, call in calls.items()}
    return type("StepTimesCallback", (base,), made)()


def _device_time_s() -> float:
    """With all that the card was given done."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _machine() -> str:
    torch = sys.modules.get("torch")
    card = torch is not None and torch.cuda.is_initialized() and torch.cuda.get_device_name()
    return slug(card) if card else "cpu"


def _commit() -> str:
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git
        return ""
