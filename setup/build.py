"""Runs one command of the build for the launcher: build.py BUILD COMMAND...

A user sees its progress, and on failure the first error with what to do; BUILD/build.log has all that it said, and
BUILD/failed, from its begin until it has succeeded, why there is no build: what the user saw, once it has failed. The
exit code is the command's; 130 where it was interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
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
BEGUN = "the build has not ended: another call is at it, or it was killed; the next call goes on where it ended"
TERMINAL_S, LINES_S = 0.5, 15.0  # between two lines of progress
SHARE_THAT_TELLS = 0.05  # of a build how long the rest may take
SHORT_S = 3.0  # a build that ends sooner is not worth a line
ERROR = re.compile(
    r"fatal error|\berror( [A-Z]?\w+)?:|: error |undefined reference to|multiple definition of|cannot find -l"
    r"|No space left on device|Disk quota exceeded|\bKilled\b|\(Kill signal\)|CMake Error|fatal +:|Permission denied"
)
QUOTED = re.compile(r"\d+ \| ")  # of the source, below what GCC says of it
LONGEST_LINE = 220
PACKAGED = "CUDACXX=packages ./gpulift setup takes a CUDA toolkit from PyPI that has it"
DISK_FULL = "the disk is full: make room, and call again"
ROOM_BYTES = 10_000_000  # with less a program may say anything, since it has read what it could not write
REMEDIES = (  # the first that an error matches
    (r"No space left on device|Disk quota exceeded", DISK_FULL),
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
            # What wraps would not be taken back. A terminal that does not know its width says 0.
            width = os.get_terminal_size(sys.stderr.fileno()).columns or len(text) + 10
            print("\r\033[K" + f"gpulift: {text}"[: width - 1], end="", file=sys.stderr, flush=True)
        else:
            say(text)

    def end(self) -> None:
        """Leaves the cursor on a line of its own."""
        if self.terminal and self.told_s:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@dataclass
class Output:
    """Of all that a command says what explains a failure; the rest may be of any size."""

    error: str = ""  # the first
    last: str = "no reason given"

    def see(self, line: str) -> None:
        """A line of it."""
        text = line.strip()
        if not text:
            return
        if not self.error and ERROR.search(text) and not QUOTED.match(text):
            self.error = text
        elif self.error == self.last and self.error.startswith("CMake Error"):  # whose text is below
            self.error += f" {text}"
        self.last = text


def explanation(output: Output, progress: Progress, log: Path) -> list[str]:
    """What failed, its first error, what helps, and where all of it is."""
    error = output.error or output.last
    remedy = next(text for pattern, text in REMEDIES if re.search(pattern, error))
    with contextlib.suppress(OSError):
        remedy = DISK_FULL if shutil.disk_usage(log.parent).free < ROOM_BYTES else remedy
    how_far = f" after {progress.done} of {progress.total}" if progress.total else ""
    return [f"the build failed{how_far}:", f"  {error[:LONGEST_LINE]}", remedy, f"all that was said: {log}"]


def run(build: Path, command: list[str], output: Output, progress: Progress) -> int:
    """The command's exit code; what it says goes to the log, too. OSError where that cannot be written."""
    # In English, which ERROR and REMEDIES know; LANGUAGE would go before.
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C.UTF-8", "LANGUAGE": ""}
    pipe, same = subprocess.PIPE, subprocess.STDOUT
    # It keeps the launcher's lock with it: where this process is killed, the next call waits until no compiler runs.
    process = subprocess.Popen(
        command, stdout=pipe, stderr=same, encoding="utf-8", errors="replace", env=environment, close_fds=False
    )
    try:
        assert process.stdout
        with process.stdout, (build / LOG).open("a", buffering=1, encoding="utf-8") as log:
            for line in process.stdout:
                output.see(line)
                log.write(line)
                progress.see(line)
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def leave(failed: Path, told: list[str]) -> None:
    """Tells other calls. Where the disk has become full, what is there already takes no more room."""
    with contextlib.suppress(OSError), failed.open("r+" if failed.exists() else "w", encoding="utf-8") as file:
        file.write("\n".join(told) + "\n")
        file.truncate()


def main(build: Path, command: list[str]) -> int:
    """Entry point."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress, output = Progress(sys.stderr.isatty()), Output()
    try:
        build.mkdir(exist_ok=True)
        leave(build / FAILED, [BEGUN])
        code = run(build, command, output, progress)
    except KeyboardInterrupt:
        code = INTERRUPTED
        told = ["the build was interrupted; the next call goes on where it ended"]
    except OSError as error:
        code = 1
        reason = "No space left on device" if error.errno == errno.ENOSPC else f"{error}"
        told = explanation(Output(reason), progress, build / LOG)
    else:
        if code < 0:
            output.see(f"{command[0]}: {signal.strsignal(-code)}")
        told = explanation(output, progress, build / LOG)
    progress.end()
    if code == 0:
        (build / FAILED).unlink(missing_ok=True)
        return 0
    for line in told:
        say(line)
    leave(build / FAILED, told)
    return code if code > 0 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
