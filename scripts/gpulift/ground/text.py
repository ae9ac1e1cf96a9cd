"""Texts for people: numbers with units and intervals, foreign texts made harmless."""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONDecodeError

from gpulift.ground.estimate import Estimate

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SMALL = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
ENERGY = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"))
BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# What the last word of an axis' name says of its values.
UNITS = {
    "bytes": "B",
    "kilobytes": "kB",
    "megabytes": "MB",
    "gigabytes": "GB",
    "kibibytes": "KiB",
    "mebibytes": "MiB",
    "gibibytes": "GiB",
    "kib": "KiB",
    "mib": "MiB",
    "gib": "GiB",
    "us": "µs",
    "ms": "ms",
}
NO_INTERVAL = "too few blocks for an interval"
# BibTeX counts braces even behind a backslash, so that they need names.
BIBTEX = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "%&#_$"},
}


def digits(value: float, significant: int = 3) -> str:
    """A number with that many digits: 0.123, 1.23, 12.3, 123, 1234."""
    if value == 0:
        return "0"
    places = significant
    size = abs(value)
    while places > 0 and size >= 10 ** (significant - places):
        places -= 1
    if size < 0.1:
        return f"{value:.{significant}g}"
    return f"{value:.{places}f}"


def rate(value: float, unit: str) -> str:
    """4.80e12, B/s becomes 4.80 TB/s; 1.2e6, images/s, a word, becomes 1.20 million images/s."""
    if unit[:1].islower():
        million = " million" if value >= 1e6 else ""
        return f"{digits(value / 1e6 if million else value)}{million} {unit}"
    factor, prefix = next((p for p in PREFIXES if value >= p[0]), PREFIXES[-1])
    return f"{digits(value / factor)} {prefix}{unit}"


def seconds(value: float) -> str:
    """0.00123 becomes 1.23 ms."""
    factor, unit = next((s for s in SMALL if value >= s[0]), SMALL[-1])
    return f"{digits(value / factor)} {unit}"


def saved(value: float | None) -> str:
    """0.00123 becomes `1.23 ms less a step`, -0.00123 `1.23 ms more a step`; else empty."""
    if not value:
        return ""
    return f"{seconds(abs(value))} {'less' if value > 0 else 'more'} a step"


def joules(value: float) -> str:
    """0.00123 becomes 1.23 mJ."""
    factor, unit = next((one for one in ENERGY if value >= one[0]), ENERGY[-1])
    return f"{digits(value / factor)} {unit}"


def size(value: int | None) -> str:
    """65536 becomes 64.0 KiB; an unknown size is a dash."""
    if value is None:
        return "–"
    for factor, unit in BINARY:
        if value >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value} B"


def some(names: Sequence[str], most: int) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 case`, `3 cases`; with another plural `2 processes`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def percent(value: float | None) -> str:
    """0.8765 becomes 87.7 %; an unknown share is a dash."""
    return "–" if value is None else f"{100 * value:.1f} %"


def speedup(estimate: Estimate) -> str:
    """1.905× [1.899, 1.911], and why the interval is absent or of one launch."""
    shown = interval(estimate, "×")
    if estimate.low is None or estimate.high is None:
        return f"{shown} ({NO_INTERVAL})"
    return f"{shown} one launch" if estimate.one_launch else shown


def interval(estimate: Estimate, sign: str = "") -> str:
    """1.905 [1.899, 1.911]: as many decimals as the interval deserves."""
    places = _places(estimate)
    text = f"{estimate.value:.{places}f}{sign}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{estimate.low:.{places}f}, {estimate.high:.{places}f}]"


def around(estimate: Estimate) -> str:
    """60123 [60001, 60245]: three digits of each, or all before the point."""
    ends = [digits(end) for end in (estimate.low, estimate.high) if end is not None]
    value = digits(estimate.value)
    return f"{value} [{', '.join(ends)}]" if ends else value


def ratio(value: float) -> str:
    """1.004×, 5.46×, 12454×: a decimal more beside 1."""
    return f"{value:.3f}×" if 0.95 < value < 1.05 else f"{digits(value)}×"


def verdict(estimate: Estimate) -> tuple[str, str]:
    """A glyph and a word: which side of 1 the whole interval is on."""
    if estimate.low is None or estimate.high is None:
        return "?", "no interval"
    if estimate.low > 1:
        return "▲", "faster"
    if estimate.high < 1:
        return "▼", "slower"
    return "≈", "no difference shown"


def case_label(case_id: str, short: bool = False) -> str:
    """`direction:h2d/bytes:65536` becomes `direction h2d, 64 KiB`; short: `h2d, 64 KiB`."""
    axes = (part.partition(":") for part in case_id.split("/"))
    return ", ".join(axis_label(axis, value, short) for axis, _, value in axes)


def axis_label(axis: str, value: str, short: bool = False) -> str:
    """`piece_bytes`, 4096 becomes `piece 4 KiB`; short: a word stands without its axis."""
    if not value.isdecimal():
        return value if short else f"{axis} {value}".strip()
    measured = quantity(axis, float(value))
    return f"{axis.rpartition('_')[0]} {measured}".strip() if measured else f"{axis} {value}"


def quantity(axis: str, value: float) -> str | None:
    """`kilobytes`, 760 becomes `760 kB`; None where the axis' name says no unit."""
    unit = UNITS.get(axis.rpartition("_")[2])
    if unit is None:
        return None
    return round_size(value) if unit == "B" else f"{value:.15g} {unit}"


def round_size(value: float) -> str:
    """A size of a sweep: 64 KiB where it is a whole number of them, 1234 B where not."""
    for factor, unit in BINARY:
        if value >= factor and value % factor == 0:
            return f"{value / factor:.0f} {unit}"
    return f"{value:.0f} B"


def _places(estimate: Estimate) -> int:
    half = estimate.half_width
    if half is None:
        return 2
    width = half * estimate.value
    for places in (1, 2):
        if width >= 10**-places:
            return places
    return 3 if estimate.value < 100 else 1


def visible(text: str) -> str:
    """The text on one line; what a terminal would obey or hide is written as its escape."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def json_problem(error: JSONDecodeError) -> str:
    """What is wrong, without the `at` that some of these end in: the place is told elsewhere."""
    return error.msg.removesuffix(" at").removesuffix(" starting")


def bibtex_text(text: str) -> str:
    """The text for a field of a BibTeX entry, where it is read as these very letters."""
    return "".join(BIBTEX.get(letter, letter) for letter in visible(text))
