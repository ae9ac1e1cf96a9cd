"""How often a gate of a command is wrong: `python -m tools.command_trials same|slower GATES [gpu]`
prints a row of a table.

In a scratch repository a step that the processor bounds is gated against itself, and against one
that does 3 % more of the same work; with `gpu` a step of products on a GPU, and 1 % more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gpulift.verdicts.stats import upper_bound


@dataclass(frozen=True)
class Trial:
    """A step that does `count` times the same work, and what a gate reads of it."""

    step: str
    count: int
    slower: float
    options: tuple[str, ...] = ()


GPU_STEP = """
import torch

torch.manual_seed(0)
left, right = torch.randn(2, 4096, 4096, device="cuda").bfloat16()
events = [torch.cuda.Event(enable_timing=True) for _ in range(41)]
for event in events:
    event.record()
    for _ in range({count}):
        left @ right
torch.cuda.synchronize()
steps = [first.elapsed_time(last) for first, last in zip(events[20:], events[21:])]
print("step_ms", sorted(steps)[len(steps) // 2])
"""
PROCESSOR = "processor"
TRIALS = {
    PROCESSOR: Trial("sum(i * i for i in range({count}))\n", 3_000_000, 1.03),
    "gpu": Trial(GPU_STEP, 100, 1.01, ("--metric", "stdout:step_ms ([0-9.]+)")),
}
VERDICTS = {0: "passed", 1: "regressed", 5: "inconclusive"}
GPULIFT = Path(__file__).parents[1]


def _commit(folder: Path, step: str, count: int) -> str:
    (folder / "step.py").write_text(step.format(count=count), encoding="utf-8")
    identity = ("-c", "user.name=trial", "-c", "user.email=trial@localhost")
    git = ["git", "-C", str(folder), *identity]
    for command in (["add", "."], ["commit", "--quiet", "--allow-empty", "-m", str(count)]):
        subprocess.run([*git, *command], check=True)
    named = [*git, "rev-parse", "HEAD"]
    return subprocess.run(named, check=True, capture_output=True, text=True).stdout.strip()


def _trials(folder: Path, asked: list[str], gates: int) -> Iterator[tuple[str, float]]:
    """The verdict of each gate, and its seconds."""
    command = ["gate", *asked, "--", sys.executable, "step.py"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    for number in range(gates):
        started_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(GPULIFT), *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        verdict = VERDICTS.get(done.returncode, f"exit code {done.returncode}")
        seconds = time.monotonic() - started_s
        print(
            f"{number}: {verdict}, {seconds:.0f} s: {done.stdout or done.stderr}", file=sys.stderr
        )
        yield verdict, seconds


def main(head: str, gates: int, place: str = PROCESSOR) -> None:
    """Prints the row: verdicts, and the longest gate's seconds."""
    trial = TRIALS[place]
    more = {"same": 1.0, "slower": trial.slower}[head]
    with TemporaryDirectory(prefix="gpulift-trials-") as name:
        folder = Path(name)
        subprocess.run(["git", "init", "--quiet", name], check=True)
        (folder / ".gitignore").write_text("cache\n", encoding="utf-8")
        base = _commit(folder, trial.step, trial.count)
        other = _commit(folder, trial.step, round(more * trial.count))
        held = list(_trials(folder, ["--base", base, "--head", other, *trial.options], gates))
    counts = Counter(verdict for verdict, _ in held)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    wrong = counts["regressed"] if head == "same" else gates - counts["regressed"]
    bound, longest_s = upper_bound(wrong, gates), max(seconds for _, seconds in held)
    print(f"| {head} | {gates} | {told} | {bound:.0%} | {longest_s:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
