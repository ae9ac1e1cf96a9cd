"""What a mistyped name may mean. ./gpulift and ci/test run this file, too, with any Python."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable

NEAR = 5  # names that are shown


def near(wanted: str, names: Iterable[str]) -> list[str]:
    """The names that are like the text, or of which a part between slashes is."""
    parts = {part: name for name in names for part in (name, *name.split("/"))}
    close = difflib.get_close_matches(wanted, sorted(parts), NEAR, cutoff=0.5)
    return list(dict.fromkeys(parts[part] for part in close))


def near_filter(filter: str, names: Iterable[str]) -> list[str]:
    """The same of a regular expression that may be a name with an anchor or a slash about it."""
    return near(filter.strip("-^$/"), names)


if __name__ == "__main__":
    print(", ".join(near(sys.argv[1], sys.argv[2:])))
