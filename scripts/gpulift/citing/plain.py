"""Texts of records made harmless: a record may come from anybody."""

from __future__ import annotations

# BibTeX counts braces even behind a backslash, so that they need names.
BIBTEX = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "%&#_$"},
}


def visible(text: str) -> str:
    """The text on one line; what a terminal would obey or hide is written as its escape."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def bibtex_text(text: str) -> str:
    """The text for a field of a BibTeX entry, where it is read as these very letters."""
    return "".join(BIBTEX.get(letter, letter) for letter in visible(text))
