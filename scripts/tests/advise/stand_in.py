"""A training script with a probe in it, of which there are only the messages: no torch.

`stand_in.py WAY [FOLDER]` does one thing another way than a script without trouble.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLAN = json.loads(os.environ["GPULIFT_ADVISE"])
SAID = Path(os.environ["GPULIFT_ADVISE_SAID"])
WAY = sys.argv[1] if len(sys.argv) > 1 else ""
FOLDER = Path(sys.argv[2] if len(sys.argv) > 2 else os.devnull)
STEP_S, WORKERS_GAIN, FUSED_GAIN = 0.1, 1.5, 1.25
BASELINE = "as it is"
LOADER = {"workers": 1, "prefetch": 2, "pin_memory": False, "batch": 32}
ARMS = ("fused", "tf32")
PATIENCE_S = 60  # in which it is ended


def say(kind: str, **values: Any) -> None:
    """One message."""
    with SAID.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"say": kind, **values}) + "\n")


def main() -> None:
    """To the end of the process."""
    if FOLDER.is_dir():
        note()
    if WAY == "code 3":
        print("what it prints")
        print("Traceback\n  CUDA error: none left", file=sys.stderr)
        sys.exit(3)
    if takes_no_step():
        return
    say(
        "hello",
        torch="2.11.0",
        device="cpu",
        cores=4,
        refused=WAY if WAY == "several hosts" else "",
    )
    if WAY == "several hosts":
        signal.pause()
    if WAY == "too short":
        say("failed", why="the script ended by itself after 3 steps", arm="")
        return
    if WAY == "never flat":
        say("failed", why="steps never took as long as those before", arm="")
        say("end", steps=9)
        return
    say("phase", text="measures steps as they are")
    turn() if PLAN["mode"] == "turn" else replay()
    say("end", steps=40)
    if WAY == "goes on":
        signal.pause()
    if WAY == "trains on":
        print("trained")
        sys.exit(4)


def takes_no_step() -> bool:
    """Nor says hello."""
    if WAY in ("no step", "hangs ahead"):
        say("phase", text="waits for the first step")
    if WAY == "hangs ahead":
        signal.pause()
    return WAY in ("no torch", "no step")


def note() -> None:
    """What it was started with, and a child that would outlive it."""
    if WAY == "locks":
        (FOLDER / "lock").mkdir()
    child = subprocess.Popen(["sleep", "1000"])
    started = {"plan": PLAN, "arguments": sys.argv[3:], "child": child.pid, **os.environ}
    with (FOLDER / "started.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(started) + "\n")


def live(step_s: float) -> None:
    """Some steps, a half of which the loader takes."""
    say("live", steps_s=[step_s] * 5, waits_s=[step_s / 2] * 5)
    say(
        "facts",
        anchor="loader",
        steps_before=12,
        optimizers=["AdamW"],
        loader=LOADER,
        batches_per_step=1,
        compiled=True,
        hooks_s=1e-5,
    )


def turn() -> None:
    """Steps with what the plan says."""
    fast = "num_workers" in PLAN.get("loader", {})
    if fast and WAY == "breaks with workers":
        sys.exit("no shared memory")
    if fast and WAY == "interrupts with workers":
        interrupt()
    gain = (WORKERS_GAIN if fast else 1) * (FUSED_GAIN if "switches" in PLAN else 1)
    live(STEP_S / gain)
    say("memory", device_bytes=0, host_bytes=1 << 30)
    say("course", losses=[2.0, 1.5, 1.0])


def replay() -> None:
    """Windows of all arms that the plan leaves."""
    arms = [arm for arm in ARMS if arm not in PLAN["without"]]
    arms = [arm for arm in arms if PLAN["only"] is None or arm in PLAN["only"]]
    live(STEP_S)
    for arm in arms:
        say("arm", arm=arm, label=arm, state="tried", keeps="bits")
    for arm in (BASELINE, *arms):
        say("check", arm=arm, losses=[2.0, 2.0], bits=True, band=1e-3)
    for block in range(2):
        order = [BASELINE, *arms]
        for place, arm in enumerate([*order, *reversed(order)]):
            if block:
                die(arm)
            seconds = 8 * STEP_S / 2 / (FUSED_GAIN if arm == "fused" else 1)
            say(
                "window",
                arm=arm,
                block=block,
                place=place,
                steps=8,
                seconds=seconds,
                issued_s=seconds / 2,
            )


def die(arm: str) -> None:
    """In this arm, where that is the way."""
    say("phase", text=f"block 2 of 2: {arm}")
    how, _, where = WAY.rpartition(" in ")
    if where != arm:
        return
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails":
        say("failed", why="RuntimeError", arm=arm)
        say("failed", why="the script ended by itself after 30 steps", arm="")
        sys.exit("RuntimeError: no kernel")
    if how == "hangs":
        signal.pause()
    if how == "interrupts":
        interrupt()


def interrupt() -> None:
    """As Ctrl-C does; the parent ends this process, or sends it the same."""
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(PATIENCE_S)


if __name__ == "__main__":
    main()
