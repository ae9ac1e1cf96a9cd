"""Which ids the records of a file have, kept in the user's cache from one call to the next.

An id is a hash of a whole record: without this all of them are read to find one. It says in which
files to look, and no more; what it lacks, or has of a file as it was, is read there and kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gpulift.ground import place
from gpulift.ground.errors import GpuliftError
from gpulift.ground.whole import write_whole

FILE = "gpulift/record-ids-1.json"  # in the cache; another number where ids are made otherwise

_State = tuple[int, int, int]  # of a file: its size, and when it and what is known of it changed
_Kept = dict[str, tuple[_State, tuple[str, ...]]]  # by the file's name


class KnownIds:
    """Those that are kept, and those of files that were read since."""

    def __init__(self) -> None:
        self._cache = _cache()
        self._kept = _read(self._cache) if self._cache else {}
        self._states: dict[str, _State] = {}
        self._changed = False

    def of(self, file: Path) -> Sequence[str] | None:
        """None where the file was never read, or has changed since."""
        name = os.path.abspath(file)
        try:
            facts = os.stat(name)
        except OSError:
            return None
        state = self._states[name] = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        kept_state, ids = self._kept.get(name, (None, None))
        return ids if kept_state == state else None

    def keep(self, file: Path, ids: Sequence[str]) -> None:
        """Of a file that `of` was asked about before it was read."""
        name = os.path.abspath(file)
        if name in self._states:
            self._kept[name] = (self._states[name], tuple(ids))
            self._changed = True

    def save(self) -> None:
        """Without those of files that are gone. Where it cannot be written, later calls read."""
        if not (self._changed and self._cache):
            return
        there = {name: kept for name, kept in self._kept.items() if os.path.exists(name)}
        with suppress(GpuliftError):
            write_whole(msgspec.json.encode(there), self._cache, lasting=False)


def _cache() -> Path | None:
    """None of a user who has no home."""
    above = place.cache()
    return above and above / FILE


def _read(cache: Path) -> _Kept:
    """Nothing where there is none, or anything is wrong with it."""
    try:
        return msgspec.json.decode(cache.read_bytes(), type=_Kept)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return {}
