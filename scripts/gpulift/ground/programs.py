"""Other programs that are asked for an answer, within a limit that none of them can ignore."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpulift.ground.errors import FAILED, GpuliftError

ENDED_WITHIN_S = 30  # of a build that was asked to
JOB_ENVIRONMENT = "GPULIFT_JOB_ENVIRONMENT"  # a descriptor, from which ./gpulift lets it be read
KILLED_WITHIN_S = 1  # where no driver holds it


def finished(
    command: Sequence[str | Path],
    limit_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    most_bytes: int | None = None,
    content: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program to its end, with `content` on its stdin. Throws subprocess.TimeoutExpired
    after the limit: it is killed then, with all that it started, and hardly waited for, since a
    driver may hold it. Likewise GpuliftError where it writes more than `most_bytes`."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdin=pipe if content else subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        if most_bytes is None:
            said, errors = process.communicate(content or None, timeout=limit_s)
        else:
            said, errors = _read(process, limit_s, most_bytes)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe_end in (process.stdin, process.stdout, process.stderr):
            if pipe_end is not None:
                pipe_end.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_WITHIN_S)
        raise
    return subprocess.CompletedProcess(command, process.returncode, said, errors)


def _read(process: subprocess.Popen[bytes], limit_s: float, most_bytes: int) -> list[bytes]:
    """Its two outputs, until it ends."""
    ends_s = time.monotonic() + limit_s
    assert process.stdout
    assert process.stderr
    read = {pipe.fileno(): bytearray() for pipe in (process.stdout, process.stderr)}
    with selectors.DefaultSelector() as waiting:
        for pipe in read:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0.0, ends_s - time.monotonic()))
            if not ready and time.monotonic() >= ends_s:
                raise subprocess.TimeoutExpired(process.args, limit_s)
            for key, _ in ready:
                part = os.read(key.fd, 1 << 20)
                read[key.fd] += part
                if not part:
                    waiting.unregister(key.fd)
            if sum(map(len, read.values())) > most_bytes:
                raise GpuliftError(f"more than {most_bytes >> 20} MiB came", FAILED)
    process.stdout.close()
    process.stderr.close()
    process.wait(max(0.0, ends_s - time.monotonic()))
    return [bytes(part) for part in read.values()]


def answered(
    command: Sequence[str | Path],
    limit_s: float,
    of: str,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """A program that ended within the limit; raises GpuliftError `of` what was asked, or of the
    program where it cannot be started."""
    try:
        return finished(command, limit_s, environment=environment)
    except subprocess.TimeoutExpired:
        raise GpuliftError(f"{of}: no answer in {limit_s:g} s", FAILED) from None
    except OSError as error:
        raise GpuliftError(f"{command[0]}: cannot be started: {error.strerror}", FAILED) from None


def not_started(
    program: str, folder: Path, environment: Mapping[str, str], error: OSError
) -> GpuliftError:
    """Why a program could not be started in a folder, and what helps."""
    file, path = folder / program, environment.get("PATH", os.defpath)
    if not folder.is_dir():
        program, why = str(folder), error.strerror or "is not there"
    elif "/" not in program and shutil.which(program, path=path) is None:
        why = "is not on PATH"
        if program == "python" and shutil.which("python3", path=path):
            why += ", where python3 is: name that"
        elif file.is_file():
            why += f", and ./{program} is here: name that"
    elif file.is_dir():
        why = "is a folder"
    elif file.is_file() and not os.access(file, os.X_OK):
        why = f"may not be executed: chmod +x {program}"
    elif error.errno == errno.ENOEXEC:
        why = "is no program: its first line has to begin with #! and an interpreter"
    elif file.is_file() and error.errno == errno.ENOENT:
        why = "what its first line names behind #! is not there"
    else:
        why = error.strerror or str(error)
    return GpuliftError(f"{program}: cannot be started: {why}")


def last_error(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line on its stderr, or else its exit code."""
    said = text_of(done.stderr).strip().splitlines()
    return said[-1] if said else f"exit code {done.returncode}"


def tool_output(
    command: Sequence[str | Path], limit_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a tool of the build, its errors amid its output. Throws subprocess.TimeoutExpired after
    the limit: it is asked to end then, upon which ninja ends its compilers, as it is where this
    process is interrupted."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except BaseException as error:
            process.terminate()
            if isinstance(error, subprocess.TimeoutExpired):
                try:
                    process.communicate(timeout=ENDED_WITHIN_S)
                except subprocess.TimeoutExpired:
                    process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, said)


def text_of(said: bytes) -> str:
    """What a program wrote, whatever it was."""
    return said.decode("utf-8", "replace")


def job_environment() -> Mapping[str, str] | None:
    """The environment in which ./gpulift was called, which isolates its own Python; None where the
    job gets ours."""
    descriptor = os.environ.pop(JOB_ENVIRONMENT, None)
    if descriptor is None:
        return None
    with open(int(descriptor), "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, sign, value in pairs if sign}


def require_program(program: str, path: str | None) -> None:
    """Raises GpuliftError where a shell with that PATH would not start it."""
    if shutil.which(program, path=path) is None:
        missing = FileNotFoundError(errno.ENOENT, "there is no such program")
        environment = os.environ if path is None else {"PATH": path}
        raise not_started(program, Path.cwd(), environment, missing)
