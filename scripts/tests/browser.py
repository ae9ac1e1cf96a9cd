"""Pages in the system's Chromium, driven by Playwright; nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PHONE = {"width": 390, "height": 844}
WIDE = {"width": 1600, "height": 1000}


@dataclass
class Seen:
    """What a page did that a report must not do, while it was open."""

    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """Everything; empty for a page that behaves."""
        return [*self.requests, *self.dialogs, *self.errors]


def missing() -> str:
    """Why no page can be opened here, and the remedy; empty if one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the Python package playwright is not there: pip install playwright"
    if program() is None:
        return "there is no Chromium: apt-get install chromium"
    return ""


def program() -> str | None:
    """The browser of the system, if it has one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium. It has its sandbox except as root, whom Chromium refuses one."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program(), args=flags)
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def page(chromium: Browser, file: Path, **options: Any) -> Iterator[tuple[Page, Seen]]:
    """The file as a page, and what it did; `options` are those of a browser context.

    No request but that for the file itself leaves the browser.
    """
    seen = Seen()
    address = file.resolve().as_uri()
    context = chromium.new_context(offline=True, **options)
    try:
        opened = context.new_page()
        opened.on("request", lambda one: _note_request(seen, address, one.url))
        opened.on("dialog", lambda one: _note_dialog(seen, one))
        opened.on("pageerror", lambda one: seen.errors.append(str(one)))
        opened.on("console", lambda one: _note_message(seen, one.type, one.text))
        opened.goto(address)
        yield opened, seen
    finally:
        context.close()


def options(size: Mapping[str, int] = WIDE, scheme: str = "light", **more: Any) -> dict[str, Any]:
    """Options of a browser context."""
    return {"viewport": dict(size), "color_scheme": scheme, **more}


def _note_dialog(seen: Seen, dialog: Dialog) -> None:
    seen.dialogs.append(dialog.message)
    dialog.dismiss()


def _note_request(seen: Seen, address: str, url: str) -> None:
    if url.partition("#")[0] != address and not url.startswith("data:"):
        seen.requests.append(url)


def _note_message(seen: Seen, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        seen.errors.append(text)
