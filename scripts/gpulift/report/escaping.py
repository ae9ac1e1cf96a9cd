"""Texts of records made harmless for a page, for Markdown, for ids and for file names.

A record may come from anybody: its fields may hold markup, what turns the direction of writing
around, or ten thousand letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup, escape

from gpulift.ground.text import visible

MOST_LETTERS = 120  # of a name in a cell; the whole is in its title
MOST_LETTERS_MARKDOWN = 1500
ID_LETTERS = 48
# What begins a tag, an entity, a cell, code, emphasis, a link or an address that GitHub links.
MARKDOWN = (
    ("\\", "\\\\"),
    ("&", "&amp;"),
    ("<", "&lt;"),
    (">", "&gt;"),
    ("|", "\\|"),
    ("`", "\\`"),
    ("*", "\\*"),
    ("](", "]\\("),
    ("][", "]\\["),
    ("]:", "]\\:"),
    ("![", "!\\["),
    ("://", "&#58;//"),
    ("www.", "www&#46;"),
    ("@", "@&#8203;"),
)
# A sign of each of these and of what GitHub takes for an issue: few texts have any.
MARKDOWN_SIGN = re.compile(r"[\\&<>|`*\[\]@#]|://|www\.")


class Ready(str):
    """Markdown that is written as it is."""

    __slots__ = ()


def shown(text: str) -> str:
    """The text on one line; what a browser would hide or obey as a direction is made visible."""
    line = " ".join(text.split()) if not text.isprintable() else text
    return line if line.isprintable() else visible(line)


def brief(text: str, most: int = MOST_LETTERS) -> str:
    """The text, or its beginning where it is longer than a name should be."""
    line = shown(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def name(text: str) -> Markup:
    """A name for the page: a long one is cut, with the whole as its title."""
    line = shown(text)
    if len(line) <= MOST_LETTERS:
        return escape(line)
    return Markup('<span title="{}">{}</span>').format(line, brief(line))


def head(text: str) -> Markup:
    """A name at a table's head, which a line may break behind its underscores."""
    line = shown(text)
    if len(line) > MOST_LETTERS:
        return name(text)
    return Markup("_<wbr>").join(line.split("_"))


def html(value: object) -> object:
    """What the page's template prints: texts with nothing invisible in them, not yet escaped."""
    if isinstance(value, str) and not isinstance(value, Markup) and not value.isprintable():
        return shown(value)
    return value


def markdown(value: object) -> object:
    """What a template of Markdown prints: a text in which nothing is markup, on one line."""
    if not isinstance(value, str) or isinstance(value, Ready):
        return value
    line = brief(str(value), MOST_LETTERS_MARKDOWN)
    if MARKDOWN_SIGN.search(line) is None:
        return line
    for sign, harmless in MARKDOWN:
        line = line.replace(sign, harmless)
    return re.sub(r"(?<!&)#(?=\d)", "#&#8203;", line)


def code(text: str) -> Ready:
    """A text as Markdown's code; as plain text where it holds what could be taken for markup."""
    line = brief(text)
    if not line or set(line) & set("`|<>&"):
        return Ready(markdown(line))
    return Ready(f"`{line}`")


def anchors(names: Iterable[str], prefix: str) -> dict[str, str]:
    """An id for each name, of a-z, 0-9 and hyphens, all different, the same in each run."""
    made: dict[str, str] = {}
    taken: set[str] = set()
    for one in names:
        stem = re.sub(r"[^a-z0-9]+", "-", one.lower())[:ID_LETTERS].strip("-")
        plain = f"{prefix}-{stem}" if stem else prefix
        id, number = plain, 1
        while id in taken:
            number += 1
            id = f"{plain}-{number}"
        taken.add(id)
        made[one] = id
    return made
