"""Runs one command of the build for the launcher: build.py BUILD COMMAND...

A user sees its progress, and on failure the first error with what to do; BUILD/build.log has all that it said, and
BUILD/failed, while a build has failed, what the user saw. The exit code is the command's; 130 where it was interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from packages import say

LOG, FAILED = "build.log", "failed"
STATUS = re.compile(r"\[(\d+)/(\d+)\] ")  # as NINJA_STATUS below asks for
INTERRUPTED = 130
TERMINAL_S, LINES_S = 0.5, 15.0  # between two lines of progress
SHARE_THAT_TELLS = 0.05  # of a build how long the rest may take
SHORT_S = 3.0  # a build that ends sooner is not worth a line
ERROR = re.compile(
    r"fatal error|\berror( [A-Z]?\w+)?:|: error |undefined reference to|multiple definition of|cannot find -l"
    r"|No space left on device|\bKilled\b|\(Kill signal\)|CMake Error|fatal +:|Permission denied"
)
LONGEST_LINE = 220
PACKAGED = "CUDACXX=packages ./gpulift setup takes a CUDA toolkit from PyPI that has it"
REMEDIES = (  # the first that an error matches
    (r"No space left on device", "the disk is full: make room, and call again"),
    (
        r"\bKilled\b|Kill signal|out of memory",
        "memory was too little for the compiler: end other programs, and call again",
    ),
    (r"fatal error: (cu|nv|nccl|cooperative_groups)\S*: No such file", f"this CUDA toolkit is not whole: {PACKAGED}"),
    (
        r"fatal error: \S+: No such file",
        "a header is missing: ./gpulift setup installs what it can; or install its package",
    ),
    (r"Permission denied", "make the build folder yours, and call again"),
    (r"", "call again; if it stays so, report these lines and the log"),
)


@dataclass
class Progress:
    """What ninja's lines say of how far it is, told now and then."""

    terminal: bool
    begun_s: float = field(default_factory=time.monotonic)
    told_s: float = 0.0
    done: int = 0
    total: int = 0

    def see(self, line: str) -> None:
        """A line of output."""
        if match := STATUS.match(line):
            self.done, self.total = int(match[1]), int(match[2])
            now = time.monotonic()
            pause = TERMINAL_S if self.terminal else LINES_S
            if now - self.begun_s >= SHORT_S and now - self.told_s >= pause:
                self.told_s = now
                self._tell(self.words(now - self.begun_s))

    def words(self, elapsed_s: float) -> str:
        """How far it is after so long."""
        told = self.done >= self.total * SHARE_THAT_TELLS > 0
        left = f", about {elapsed_s / self.done * (self.total - self.done):.0f} s left" if told else ""
        return f"building: {self.done} of {self.total} done{left}"

    def _tell(self, text: str) -> None:
        if self.terminal:
            print(f"\r\033[Kgpulift: {text}", end="", file=sys.stderr, flush=True)
        else:
            say(text)

    def end(self) -> None:
        """Leaves the cursor on a line of its own."""
        if self.terminal and self.told_s:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def explanation(output: str, progress: Progress, log: Path) -> list[str]:
    """What failed, its first error, what helps, and where all of it is."""
    lines = output.splitlines()
    number = next((i for i, line in enumerate(lines) if ERROR.search(line)), None)
    if number is None:
        error = next((line for line in reversed(lines) if line.strip()), "no reason given")
    else:
        error = lines[number].strip()
        if error.startswith("CMake Error"):  # whose text is below
            error += next((f" {line.strip()}" for line in lines[number + 1 :] if line.strip()), "")
    remedy = next(text for pattern, text in REMEDIES if re.search(pattern, error))
    how_far = f" after {progress.done} of {progress.total}" if progress.total else ""
    return [f"the build failed{how_far}:", f"  {error[:LONGEST_LINE]}", remedy, f"all that was said: {log}"]


def run(build: Path, command: list[str], log_lines: list[str], progress: Progress) -> int:
    """The command's exit code; its output goes to the log, and into `log_lines`. OSError where it cannot be written."""
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    )
    try:
        assert process.stdout
        with process.stdout, (build / LOG).open("a", buffering=1) as log:
            for line in process.stdout:
                log_lines.append(line)
                log.write(line)
                progress.see(line)
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def main(build: Path, command: list[str]) -> int:
    """Entry point."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress, output = Progress(sys.stderr.isatty()), list[str]()
    try:
        build.mkdir(exist_ok=True)
        code = run(build, command, output, progress)
    except KeyboardInterrupt:
        code = INTERRUPTED
        told = ["the build was interrupted; the next call goes on where it ended"]
    except OSError as error:
        code = 1
        reason = "No space left on device" if error.errno == errno.ENOSPC else f"{error}"
        told = explanation(reason, progress, build / LOG)
    else:
        told = explanation("".join(output), progress, build / LOG)
    progress.end()
    if code == 0:
        (build / FAILED).unlink(missing_ok=True)
        return 0
    for line in told:
        say(line)
    with contextlib.suppress(OSError):  # the disk is full, which was said
        (build / FAILED).write_text("\n".join(told) + "\n")
    return code if code > 0 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
