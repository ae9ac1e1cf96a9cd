"""What every run of a gate must have alike: files that it writes, and what it prints."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from gpulift.gate.metrics import STDOUT, Finished
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError
from gpulift.ground.text import visible
from gpulift.records.values import NotNegative

# NaN and infinity are none: as words they are equal to themselves alone.
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
MOST_BYTES = 1 << 26
SHOWN = 40  # letters of what differs
FIRST, LATER = "the first run of the base", "a later run"
NOISE = "; name what is the same each time, or allow for noise by --tolerance"


@dataclass(frozen=True)
class Equal:
    """What was equal in every run, or within the tolerance, and the SHA-256 of the first's."""

    source: str
    sha256: str
    tolerance: NotNegative = 0.0


@dataclass
class Outputs:
    """A file or `stdout:REGEX` each; of the first run, which is one of the base, all is kept."""

    sources: tuple[str, ...]
    tolerance: float = 0.0
    _first: dict[str, bytes] = field(default_factory=dict)
    _base: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise GpuliftError(f"--tolerance {self.tolerance:g}: a fraction, as 1e-6")
        for source in self.sources:
            try:
                re.compile(source.removeprefix(STDOUT))
            except re.error as error:
                if source.startswith(STDOUT):
                    raise GpuliftError(f"--same {source!r}: {error}") from None

    @property
    def equal(self) -> tuple[Equal, ...]:
        """As it is written down."""
        return tuple(
            Equal(source, hashlib.sha256(content).hexdigest(), self.tolerance)
            for source, content in self._first.items()
        )

    def require_equal(self, run: Finished) -> None:
        """Refuses (not comparable) a run that has something else than the first."""
        self._base = self._base or run.folder
        one = "a run of the head" if run.folder != self._base else LATER if self._first else FIRST
        for source in self.sources:
            content = _read(source, run, one)
            first = self._first.setdefault(source, content)
            if content == first or not (why := _unlike(first, content, self.tolerance)):
                continue
            raise _not_comparable(source, f"{one} has {why}{NOISE if one == LATER else ''}")


def _read(source: str, run: Finished, one: str) -> bytes:
    """What a run has of it."""
    if source.startswith(STDOUT):
        pattern = re.compile(source.removeprefix(STDOUT), re.MULTILINE)
        found = list(pattern.finditer(run.printed)) or list(pattern.finditer(run.errors))
        if not found:
            raise _not_comparable(source, f"stands nowhere in what {one} prints")
        return "\n".join("\t".join(match.groups("")) or match[0] for match in found).encode()
    file = run.folder / source
    try:
        if file.stat().st_mtime_ns < run.began_ns:
            raise _not_comparable(source, f"{one} did not write it")
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise _not_comparable(source, f"after {one}: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise _not_comparable(source, f"has more than {MOST_BYTES >> 20} MiB: name a digest of it")
    return content


def _not_comparable(source: str, why: str) -> GpuliftError:
    return GpuliftError(f"not comparable: --same {visible(source)}: {why}", NOT_COMPARABLE)


def _unlike(first: bytes, other: bytes, tolerance: float) -> str:
    """What differs beyond the tolerance; empty where nothing does."""
    try:
        before, after = (content.decode().splitlines() for content in (first, other))
    except UnicodeDecodeError:
        return f"other bytes than {FIRST}"
    if len(before) != len(after):
        return f"{len(after)} lines, {FIRST} {len(before)}"
    for number, (old, new) in enumerate(zip(before, after, strict=True), start=1):
        if old != new and not (tolerance and _close(old, new, tolerance)):
            beyond = f", beyond {tolerance:g}" if tolerance else ""
            told = [repr(visible(line[:SHOWN])) for line in (new, old)]
            return f"{told[0]}, {FIRST} {told[1]} (line {number}{beyond})"
    return "" if tolerance else f"other ends of lines than {FIRST}"


def _close(one: str, two: str, tolerance: float) -> bool:
    if NUMBER.sub("#", one) != NUMBER.sub("#", two):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(two), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=tolerance) for a, b in pairs)
