"""Jobs on nodes, many at a time, each within a limit of time."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from gpulift.fleet.kept import CODE_FILE
from gpulift.fleet.logs import LOG_FILE, TOLD_CODE, TOLD_RESULTS, last_words, open_log
from gpulift.fleet.schedulers import Node
from gpulift.ground.errors import INTERRUPTED, GpuliftError, write_error
from gpulift.ground.signals import Signals
from gpulift.ground.whole import write_whole

LOOK_S = 1.0
ENDED_WITHIN_S = 40.0  # srun waits for 32 s before it kills
# $0 is the folder. The last line, whatever is before it, tells the command's exit code from that of
# the scheduler.
IN_SHARED = """\
if [ ! -w "$0" ]; then
  echo "gpulift: error: $0 is not on this node, or not writable: name a folder that nodes share" >&2
  exit 1
fi
"$@" < /dev/null
code=$?
printf "\\ngpulift: exit code %d\\n" "$code" >&2
exit "$code"
"""
# A kubectl that is killed leaves what it started; but then its input ends. Others may write to
# /tmp: nothing there is known by its name before it is made. The first rank alone has results.
IN_OWN = """\
own=$(mktemp -d "${TMPDIR:-/tmp}/gpulift-fleet.XXXXXXXXXX") || exit 1
trap 'rm -rf "$own"; trap - TERM; kill -TERM $$' TERM
exec 3<&0
{ while read -r _ <&3; do :; done; kill 0; } > /dev/null 2>&1 &
watch=$!
"$@" --out "$own/results" < /dev/null
code=$?
kill "$watch"
printf "\\ngpulift: exit code %d\\n" "$code" >&2
if [ "${RANK:-0}" = 0 ]; then
  printf "gpulift: results are in %s\\n" "$own" >&2
else
  rm -rf "$own"
fi
exit "$code"
"""
CODE = re.compile(rf"^{TOLD_CODE}(\d{{1,3}})$", re.MULTILINE | re.ASCII)
OWN = re.compile(rf"^{TOLD_RESULTS}(/(?:.*/)?gpulift-fleet\.\w{{10}})$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True)
class Job:
    """Programs that run a command on nodes. Its folder gets what they write: `output` and
    log.txt, and at last exit_code."""

    name: str
    folder: Path
    nodes: Sequence[Node]
    commands: Sequence[Sequence[str]]
    output: str = LOG_FILE


@dataclass(frozen=True)
class Answer:
    """The command's exit code; None where it did not end, and then why. `own` is the folder of the
    node that has its results, where it told one."""

    code: int | None
    why: str = ""
    own: str = ""


class _Running:
    def __init__(self, job: Job, limit_s: float, signals: Signals) -> None:
        self.job = job
        self._limit_s, self._ends_s = limit_s, time.monotonic() + limit_s
        self._late = ""  # and what it last said
        log, output = job.folder / LOG_FILE, job.folder / job.output
        with ExitStack() as opened:
            try:
                job.folder.mkdir(parents=True, exist_ok=True)
                (job.folder / CODE_FILE).unlink(missing_ok=True)
                # Several programs add to them.
                files = {file: opened.enter_context(open_log(file, "wb")) for file in (log, output)}
                files = {file: opened.enter_context(open_log(file, "ab")) for file in files}
            except OSError as error:
                raise write_error(job.folder, error) from None
            self._processes = [
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=files[output],
                    stderr=files[log],
                    start_new_session=True,
                    preexec_fn=signals.restore_mask,
                )
                for command in job.commands
            ]
        key = secrets.token_hex(32)
        for process in self._processes:
            _tell(process, key)

    def is_over(self) -> bool:
        """Whether it ended; it is made to when its time is over."""
        now_s = time.monotonic()
        if now_s >= self._ends_s and not self.has_ended():
            self.end(signal.SIGKILL if self._late else signal.SIGTERM)
            self._late = self._late or last_words(self.job.folder)
            self._ends_s = now_s + ENDED_WITHIN_S
        return self.has_ended()

    def has_ended(self) -> bool:
        return all(process.poll() is not None for process in self._processes)

    def end(self, number: signal.Signals) -> None:
        for process in self._processes:
            _close_input(process)
            if process.poll() is None:
                os.killpg(process.pid, number)

    def answer(self) -> Answer:
        for process in self._processes:
            _close_input(process)
        if self._late:
            late = f"has not answered within {_time(self._limit_s)}"
            return Answer(None, f"{late}: {self._late}")
        said = (self.job.folder / LOG_FILE).read_text(encoding="utf-8", errors="replace")
        told = [int(code) for code in CODE.findall(said)]
        if not told:
            return Answer(None, last_words(self.job.folder))
        of_programs = max(abs(process.returncode) for process in self._processes)
        return Answer(max(told) or of_programs, own=next(iter(OWN.findall(said)), ""))


def run_all(
    jobs: Sequence[Job], at_once: int, limit_s: float, ended: Callable[[Job, Answer], None]
) -> None:
    """Runs them, so many at a time; `ended` is told of each as it ends. Raises GpuliftError when
    interrupted, after all of them were made to end."""
    waiting = deque(jobs)
    running: list[_Running] = []
    with Signals() as signals:
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    running.append(_Running(waiting.popleft(), limit_s, signals))
                if signals.wait(LOOK_S):
                    raise GpuliftError(
                        "interrupted; what is measured is kept, and the same command goes on",
                        INTERRUPTED,
                    )
                for one in [one for one in running if one.is_over()]:
                    running.remove(one)
                    ended(one.job, one.answer())
        finally:
            _end(running)


def write_code(job: Job, code: int) -> None:
    """At last, so that what has an exit code is whole."""
    write_whole(f"{code}\n", job.folder / CODE_FILE, lasting=False)


def _tell(process: subprocess.Popen[bytes], key: str) -> None:
    """Its ranks' secret, as the first line of its input."""
    if process.stdin is not None:
        with suppress(OSError):  # it ended already
            process.stdin.write(f"{key}\n".encode())
            process.stdin.flush()


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):  # of a line that nobody read
            process.stdin.close()


def _end(running: Sequence[_Running]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in running:
            one.end(number)
        ends_s = time.monotonic() + ENDED_WITHIN_S
        while time.monotonic() < ends_s and not all(one.has_ended() for one in running):
            time.sleep(0.05)


def _time(limit_s: float) -> str:
    return f"{limit_s:g} s" if limit_s < 60 else f"{limit_s / 60:g} min"
