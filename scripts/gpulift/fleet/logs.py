"""What a node, pair or group wrote while it was measured, and how it ended."""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

LOG_FILE = "log.txt"
LAST_BYTES = 4096
MOST_LETTERS = 300  # of a reason
NO_ANSWER = "no answer"
OUR_ERROR = "gpulift: error: "
TOLD_CODE = "gpulift: exit code "
TOLD_RESULTS = "gpulift: results are in "
TOLD_NO_ANSWER = f"gpulift: {NO_ANSWER}: "


def open_log(file: Path, mode: str) -> IO[Any]:
    """Of a folder in which others may have put a link or a pipe by that name: it is refused, by
    OSError."""
    encoding = None if "b" in mode else "utf-8"
    return open(file, mode, encoding=encoding, opener=_open_no_link)


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def last_words(folder: Path) -> str:
    """The last line of a log, until an exit code is told: of our errors, else of others', else of
    all."""
    lines = list(takewhile(lambda line: not line.startswith(TOLD_CODE), _last_lines(folder)))
    for words in (OUR_ERROR, "error: ", ""):
        said = [one for one in lines if words in one]
        if said:
            return said[-1].removeprefix(OUR_ERROR).removeprefix("gpulift: ")[:MOST_LETTERS]
    return "nothing was said"


def why_open(folder: Path) -> str:
    """Why something did not end, by its log."""
    if not (folder / LOG_FILE).is_file():
        return "it kept nothing"
    *_, said = ("", *_last_lines(folder))
    if said.startswith(TOLD_NO_ANSWER):
        return said.removeprefix(TOLD_NO_ANSWER)
    return f"did not end: {last_words(folder)}"


def _last_lines(folder: Path) -> list[str]:
    """Those that are not blank."""
    try:
        with (folder / LOG_FILE).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - LAST_BYTES))
            lines = log.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()]
