"""How often a gate of a command is wrong: `python -m tools.command_trials same|slower GATES [gpu]`
prints a row of a table.

In a scratch repository a step that the processor bounds is gated against itself, and against one
that does 3 % more of the same work; with `gpu` copies on a GPU, and 1 % more of them.
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
    """A step that does `count` times the same work, in a file; what runs it, and what is timed."""

    file: str
    step: str
    count: int
    slower: float
    command: tuple[str, ...]
    options: tuple[str, ...] = ()


GPU_STEP = """
#include <algorithm>
#include <cstdio>
#include <vector>

int main() {{
  constexpr std::size_t kBytes = 256 << 20;
  void *source = nullptr, *target = nullptr;
  if (cudaMalloc(&source, kBytes) || cudaMalloc(&target, kBytes)) return 1;
  cudaMemset(source, 1, kBytes);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> steps_ms(20);
  for (float& step_ms : steps_ms) {{
    cudaEventRecord(begin);
    for (int i = 0; i < {count}; ++i) cudaMemcpyAsync(target, source, kBytes, cudaMemcpyDefault);
    cudaEventRecord(end);
    if (cudaEventSynchronize(end) || cudaEventElapsedTime(&step_ms, begin, end)) return 1;
  }}
  std::sort(steps_ms.begin(), steps_ms.end());
  std::printf("step_ms %.6f\\n", steps_ms[steps_ms.size() / 2]);
}}
"""
PROCESSOR = "processor"
TRIALS = {
    PROCESSOR: Trial(
        "step.py",
        "sum(i * i for i in range({count}))\n",
        3_000_000,
        1.03,
        (sys.executable, "step.py"),
    ),
    "gpu": Trial(
        "step.cu",
        GPU_STEP,
        100,
        1.01,
        ("./step",),
        (
            *("--setup", "nvcc -O2 -o step step.cu"),
            *("--metric", "stdout:step_ms ([0-9.]+)", "--threshold", "0.005"),
        ),
    ),
}
VERDICTS = {0: "passed", 1: "regressed", 5: "inconclusive"}
GPULIFT = Path(__file__).parents[1]


def _commit(folder: Path, trial: Trial, count: int) -> str:
    (folder / trial.file).write_text(trial.step.format(count=count), encoding="utf-8")
    identity = ("-c", "user.name=trial", "-c", "user.email=trial@localhost")
    git = ["git", "-C", str(folder), *identity]
    for command in (["add", "."], ["commit", "--quiet", "--allow-empty", "-m", str(count)]):
        subprocess.run([*git, *command], check=True)
    named = [*git, "rev-parse", "HEAD"]
    return subprocess.run(named, check=True, capture_output=True, text=True).stdout.strip()


def _trials(folder: Path, asked: list[str], gates: int) -> Iterator[tuple[str, float]]:
    """The verdict of each gate, and its seconds."""
    command = ["gate", *asked]
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
        base = _commit(folder, trial, trial.count)
        other = _commit(folder, trial, round(more * trial.count))
        asked = ["--base", base, "--head", other, *trial.options, "--", *trial.command]
        held = list(_trials(folder, asked, gates))
    counts = Counter(verdict for verdict, _ in held)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    wrong = counts["regressed"] if head == "same" else gates - counts["regressed"]
    bound, longest_s = upper_bound(wrong, gates), max(seconds for _, seconds in held)
    print(f"| {head} | {gates} | {told} | {bound:.0%} | {longest_s:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
