"""How fast a report's page is in a browser: `python -m tests.browser_speed FILE...`, some times.

First contentful paint is the browser's own figure (Paint Timing, W3C), from the start of the
navigation. The filter's time runs from the key to the frame after the one that shows the rows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TIMES = 5
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
FILTER = """words => new Promise(resolve => {
    const box = document.querySelector('input[type=search]');
    const begun = performance.now();
    box.value = words;
    box.dispatchEvent(new Event('input', {bubbles: true}));
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - begun)));
})"""


def first_paint_ms(chromium: Browser, file: Path) -> float:
    """Milliseconds from the start of the navigation."""
    with browser.page(chromium, file, **browser.options()) as (page, _):
        page.wait_for_function(f"({PAINT}) !== null")
        return float(page.evaluate(PAINT))


def filter_ms(chromium: Browser, file: Path, words: list[str]) -> list[float]:
    """Milliseconds for each of these texts in the filter box, on a page that is there already."""
    with browser.page(chromium, file, **browser.options()) as (page, _):
        page.wait_for_timeout(500)
        return [float(page.evaluate(FILTER, one)) for one in words]


def main() -> int:
    """Prints medians and extremes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="+", metavar="FILE")
    pages = parser.parse_args().pages
    if why := browser.missing():
        print(why, file=sys.stderr)
        return 77
    with browser.browser() as chromium:
        print(f"Chromium {chromium.version}, {TIMES} times each, ms: median (least to most)")
        for file in pages:
            print(f"{file}, {file.stat().st_size / 1e6:.2f} MB")
            said("first contentful paint", [first_paint_ms(chromium, file) for _ in range(TIMES)])
            passes = [filter_ms(chromium, file, ["p", "pinned", ""]) for _ in range(TIMES)]
            for name, times in zip(
                ("first", "second", "none"), zip(*passes, strict=True), strict=True
            ):
                said(f"filter, {name} text", list(times))
    return 0


def said(what: str, times: list[float]) -> None:
    """One line of figures."""
    print(f"  {what:24s}{median(times):8.1f} ({min(times):.1f} to {max(times):.1f})")


if __name__ == "__main__":
    sys.exit(main())
