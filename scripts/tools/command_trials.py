"""How often a gate of a command is wrong: `python -m tools.command_trials same|slower GATES` prints
a row of a table.

In a scratch repository a step that the processor bounds is gated against itself, and against one
that does 3 % more of the same work.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from gpulift.verdicts.stats import upper_bound

STEP = "sum(i * i for i in range({count}))\n"
COUNT = 3_000_000
SLOWER = 1.03
VERDICTS = {0: "passed", 1: "regressed", 5: "inconclusive"}
GPULIFT = Path(__file__).parents[1]


def _commit(folder: Path, count: int) -> str:
    (folder / "step.py").write_text(STEP.format(count=count), encoding="utf-8")
    identity = ("-c", "user.name=trial", "-c", "user.email=trial@localhost")
    git = ["git", "-C", str(folder), *identity]
    for command in (["add", "."], ["commit", "--quiet", "--allow-empty", "-m", str(count)]):
        subprocess.run([*git, *command], check=True)
    named = [*git, "rev-parse", "HEAD"]
    return subprocess.run(named, check=True, capture_output=True, text=True).stdout.strip()


def _trials(folder: Path, base: str, head: str, gates: int) -> Iterator[tuple[str, float]]:
    """The verdict of each gate, and its seconds."""
    command = ["gate", "--base", base, "--head", head, "--", sys.executable, "step.py"]
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


def main(head: str, gates: int) -> None:
    """Prints the row: verdicts, and the longest gate's seconds."""
    more = {"same": 1.0, "slower": SLOWER}[head]
    with TemporaryDirectory(prefix="gpulift-trials-") as name:
        folder = Path(name)
        subprocess.run(["git", "init", "--quiet", name], check=True)
        (folder / ".gitignore").write_text("cache\n", encoding="utf-8")
        base, other = _commit(folder, COUNT), _commit(folder, round(more * COUNT))
        held = list(_trials(folder, base, other, gates))
    counts = Counter(verdict for verdict, _ in held)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    wrong = counts["regressed"] if head == "same" else gates - counts["regressed"]
    bound, longest_s = upper_bound(wrong, gates), max(seconds for _, seconds in held)
    print(f"| {head} | {gates} | {told} | {bound:.0%} | {longest_s:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
