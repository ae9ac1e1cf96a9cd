"""The log of a watch: a line of JSON for its beginning, for each sample, and for its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpulift.entry import say
from gpulift.runs import write_error
from gpulift.watch.cards import Card
from gpulift.watch.observer import Overhead
from gpulift.watch.samples import Sample

FORMAT = "1"


class Log:
    """A file, or none. Where it cannot be written that is said once, and the job goes on."""

    def __init__(self, file: Path | None) -> None:
        self._name = file
        try:
            self._file = file.open("w", encoding="utf-8", buffering=1) if file else None
        except OSError as error:
            assert file is not None, "it was opened"
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
        self, exit_code: int | None, overhead: Overhead, joules: Sequence[float | None]
    ) -> None:
        """The job's exit code (null where nobody learns it), and what the watch itself took."""
        self._write({"exit_code": exit_code, "overhead": asdict(overhead), "joules": list(joules)})

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _write(self, content: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(content, allow_nan=False) + "\n")
        except OSError as error:
            say(f"warning: {self._name}: {error.strerror}; the log ends here")
            self.close()
            self._file = None
