"""Errors that a user can act on: one line on stderr and an exit code, never a traceback."""

import errno
import re
from pathlib import Path

OK = 0
FAILED = 1
USAGE = 2
INSTRUMENT_BROKEN = 3
NOT_COMPARABLE = 4
INCONCLUSIVE = 5
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
BUSY = 75  # EX_TEMPFAIL
NOTHING_RAN = 77
INTERRUPTED = 130
NO_READER = 141  # as of a program that SIGPIPE ends

REFUSED = (USAGE, NOT_COMPARABLE, BUSY)  # gpulift-bench did not begin

# What re.compile() raises for what is no pattern, or for one that is beyond it.
PATTERN_ERRORS = (re.error, OverflowError, RecursionError)


class GpuliftError(Exception):
    """A message that says what is wrong and what to do, and the exit code that goes with it."""

    def __init__(self, message: str, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RecordError(GpuliftError):
    """A record that cannot be read; the message starts with file and line."""


def write_error(path: Path, error: OSError) -> GpuliftError:
    """A full disk is a failure of the run; a place that cannot be written is a usage error."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return GpuliftError(f"{path}: cannot be written: {error.strerror}", FAILED if full else USAGE)
