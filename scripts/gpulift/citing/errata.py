"""What is known to be wrong in committed records: `results/errata.toml`, and ERRATA.md made of it.

`python -m gpulift.citing.errata` writes ERRATA.md anew; a test fails where it is stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gpulift import machine, toml
from gpulift.errors import GpuliftError
from gpulift.records.fields import Fields
from gpulift.records.model import Record
from gpulift.runs import write_error

FILE = "errata.toml"
TABLE = "ERRATA.md"
TEXTS = ("short", "records", "wrong", "later")
PATTERNS = ("techniques", "cases", "arms")
KEYS = frozenset({*TEXTS, *PATTERNS, "runs", "before", "metrics", "launch"})
HEAD = """# Known errors in committed records

Records are never edited. What was found to be wrong in one after it was committed stands here,
newest first; `show` and `cite` say it of each record. This table is made from `errata.toml`.

| records | what is wrong | in later records |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class Erratum:
    """An error, and the records that have it: those that meet every condition.

    `runs` are patterns of <machine>/<run>; `before` is a time in ISO 8601, or its beginning, before
    which the record was started; techniques, cases and arms are regular expressions, an empty one
    is of all, and `arms` of any arm; of `metrics` any arm has one; `launch` counts from 0. `short`
    says it in half a sentence, the other texts are the columns of the table.
    """

    short: str
    records: str
    wrong: str
    later: str
    runs: tuple[str, ...]
    before: str
    techniques: str
    cases: str
    arms: str
    metrics: tuple[str, ...]
    launch: int | None

    @property
    def of_times(self) -> bool:
        """Whether times are in doubt: what names metrics is about these alone."""
        return not self.metrics

    def is_of(self, record: Record) -> bool:
        """Whether the record has this error."""
        run = f"{record.context.slug}/{record.file.parent.name}"
        arms = [record.duet_arm, *(arm.name for arm in record.arms)]
        had = {name for arm in record.arms for name in arm.metrics}
        return (
            any(fnmatchcase(run, one) for one in self.runs)
            and (not self.before or record.started_at < self.before)
            and bool(re.search(self.techniques, record.technique))
            and bool(re.search(self.cases, record.case_id))
            and any(re.search(self.arms, name) for name in arms)
            and (not self.metrics or not had.isdisjoint(self.metrics))
            and self.launch in (None, record.launch)
        )


def read_errata(file: Path) -> tuple[Erratum, ...]:
    """All of a file, newest first; none where there is no such file. Throws GpuliftError, with the
    field, for anything else."""
    if not file.is_file():
        return ()
    fields = Fields(toml.parsed(file), file.name)
    return tuple(_erratum(one) for one in fields.children("errata"))


def errata_of(record: Record, errata: Iterable[Erratum]) -> tuple[Erratum, ...]:
    """Those that the record has."""
    return tuple(one for one in errata if one.is_of(record))


def table(errata: Sequence[Erratum]) -> str:
    """The content of ERRATA.md."""
    rows = (f"| {one.records} | {one.wrong} | {one.later} |\n" for one in errata)
    return HEAD + "".join(rows)


def _erratum(fields: Fields) -> Erratum:
    for key in fields.values:
        if key not in KEYS:
            raise fields.error(key, "is not a known field")
    for key in PATTERNS:
        try:
            re.compile(fields.text(key, ""))
        except re.error as error:
            raise fields.error(key, f"is no regular expression: {error}") from None
    runs = fields.texts("runs")
    if not runs:
        raise fields.error("runs", "must name runs, or patterns of them")
    texts = {key: fields.text(key) for key in TEXTS}
    for key, text in texts.items():
        if not text or "|" in text or "\n" in text:
            raise fields.error(key, "must be a text of one line without |: it is a cell of a table")
    return Erratum(
        **texts,
        **{key: fields.text(key, "") for key in PATTERNS},
        runs=runs,
        before=fields.text("before", ""),
        metrics=fields.texts("metrics"),
        launch=fields.maybe_whole("launch"),
    )


def _main() -> None:
    results = machine.checkout_root() / "results"
    try:
        (results / TABLE).write_text(table(read_errata(results / FILE)), encoding="utf-8")
    except OSError as error:
        raise write_error(results / TABLE, error) from None


if __name__ == "__main__":
    try:
        _main()
    except GpuliftError as error:
        raise SystemExit(str(error)) from None
