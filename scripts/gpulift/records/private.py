"""What must not be in anything that is committed: paths, hosts, accounts, serial numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

PRIVATE = (
    ("a path", re.compile(r"(?:^|[\s\"'=(,;:])(?:~|/[\w.-]+)/[\w.-]+|\b[A-Za-z]:\\")),
    ("a path", re.compile(r"(?:^|[\s\"'=(,;:])/(?:home|root|tmp|usr|var|opt|mnt|data)\b")),
    ("a host name", re.compile(r"\b[\w-]+\.(?:local|localdomain|internal|lan|corp|com|net)\b")),
    ("an account", re.compile(r"\b[\w.-]+@[\w-]+")),
    ("a device's UUID", re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-")),
)
ADDRESS = re.compile(r"https?://\S+|(?<![\w./@~:-])github\.com/[\w.-]+/[\w.-]+")


def private_strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(where and what) of every string that looks like a path, a host, an account or a UUID."""
    if isinstance(value, str):
        told = ADDRESS.sub("", value)
        yield from [(key, meaning) for meaning, pattern in PRIVATE if pattern.search(told)][:1]
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from private_strings(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, (str, dict, list)):  # most of a record is numbers
                yield from private_strings(inner, key)
