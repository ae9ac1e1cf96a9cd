"""The Markdown twin, short enough for a comment in a pull request."""

from __future__ import annotations

from collections.abc import Sequence

LIMIT = 60_000  # characters; GitHub takes 65,536 in a comment
CUT_LINE = 200  # what a note on a cut needs


def fit(parts: Sequence[tuple[str, str]], limit: int = LIMIT) -> str:
    """The parts in their order. Where all is too long, the longest lose their last lines.

    The first part, the answer, is whole where it takes no more than half of the room. A cut part
    ends with how many lines are only on the page, so that nothing goes in silence.
    """
    texts = [text.strip("\n") for _, text in parts]
    room = limit - CUT_LINE * len(texts)
    whole = len(texts[0]) if texts and len(texts[0]) <= room // 2 else 0
    most = _share([len(text) for text in texts[1 if whole else 0 :]], room - whole)
    cut = [
        text if whole and not place else _cut(text, most, parts[place][0])
        for place, text in enumerate(texts)
    ]
    return "\n\n".join(text for text in cut if text) + "\n"


def _share(lengths: Sequence[int], room: int) -> int:
    """The longest that each may be so that all fit: short ones leave what they do not need."""
    left, rest = room, sorted(lengths)
    while rest:
        fair = left // len(rest)
        if rest[0] > fair:
            return fair
        left -= rest.pop(0)
    return max(lengths, default=room)


def _cut(text: str, most: int, name: str) -> str:
    if len(text) <= most:
        return text
    lines = text.split("\n")
    size, kept = 0, 0
    while kept < len(lines) and size + len(lines[kept]) < most:
        size += len(lines[kept]) + 1
        kept += 1
    note = f"*{len(lines) - kept} more lines of {name} are only on the page.*"
    return "\n".join([*lines[:kept], "", note])
