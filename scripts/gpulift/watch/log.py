"""The log of a watch: a line of JSON for its beginning, for each sample, and for its end."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from io import FileIO
from pathlib import Path
from typing import Any

from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError, write_error
from gpulift.watch.cards import Card
from gpulift.watch.job import Reading
from gpulift.watch.observer import Overhead
from gpulift.watch.samples import Sample

FORMAT = "1"


class Log:
    """A file, or none. Where it cannot be written that is said once, and the job goes on: a pipe or
    terminal that nobody reads is not waited for, neither before the job nor while it runs."""

    def __init__(self, file: Path | None) -> None:
        self._name = file
        try:
            self._file = FileIO(file, "w", opener=_opened) if file else None
        except OSError as error:
            assert file is not None, "it was opened"
            if error.errno == errno.ENXIO:
                raise GpuliftError(
                    f"{file}: is a pipe without a reader; start that first"
                ) from None
            raise write_error(file, error) from None

    def begin(self, pid: int, interval_s: float, cores: float, cards: Sequence[Card]) -> None:
        """Of what the samples are."""
        started = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        gpus = [{"index": c.index, "name": c.name, "activities": c.has_activities} for c in cards]
        what = {"watch": FORMAT, "started_at": started, "pid": pid, "interval_s": interval_s}
        self._write({**what, "cores": cores, "gpus": gpus})

    def add(self, sample: Sample) -> None:
        """The newest sample."""
        self._write(asdict(sample))

    def end(
        self,
        exit_code: int | None,
        overhead: Overhead,
        joules: Sequence[float | None],
        left: int,
        last: Reading,
    ) -> None:
        """The job's exit code (null where nobody learns it), what the watch itself took, how many
        processes of the job go on, and the most memory that one of its processes was seen to have
        had; if more can have been, below what."""
        self._write(
            {
                "exit_code": exit_code,
                "overhead": asdict(overhead),
                "joules": list(joules),
                "processes_left": left,
                "peak_bytes_of_a_process": last.peak_bytes,
                "peak_limit_bytes": last.peak_limit_bytes or None,
            }
        )

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _write(self, content: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        left = json.dumps(content, allow_nan=False).encode() + b"\n"
        try:
            while left:
                written = self._file.write(left)
                if not written:
                    raise BlockingIOError(errno.EAGAIN, "it is full, and nobody reads it")
                left = left[written:]
        except OSError as error:
            say(f"warning: {self._name}: {error.strerror}; the log ends here")
            self.close()
            self._file = None


def _opened(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK, 0o666)
