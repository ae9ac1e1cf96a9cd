"""Texts and tables in the Markdown of GitHub, in which no text of a record is markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift.ground.text import visible

MOST_LETTERS = 160
PLAIN = " -/,%"  # punctuation that is no markup inside a line
IN_BACKTICKS = f"{PLAIN}_:.+=()"  # nor ends inline code or the cell of a table


def code(value: str) -> str:
    """A text of a record as inline code in which nothing is markup, a mention or a link.

    Ids and plain words are in backticks, so that an e-mail or a log can be read, too. In all else
    ASCII punctuation that could mean anything is a numeric character reference, which CommonMark
    never takes for structure; GitHub turns no text inside <code> into mentions.
    """
    shown = visible(value)
    if len(shown) > MOST_LETTERS:
        shown = f"{shown[:MOST_LETTERS]}…"
    if shown.strip() and all(one.isalnum() or one in IN_BACKTICKS for one in shown):
        return f"`{shown}`"
    inside = "".join(
        letter
        if letter.isalnum() or letter in PLAIN or not letter.isascii()
        else f"&#{ord(letter)};"
        for letter in shown
    )
    return f"<code>{inside}</code>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, and an empty one; nothing without rows."""
    if not rows:
        return
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"
    yield ""
