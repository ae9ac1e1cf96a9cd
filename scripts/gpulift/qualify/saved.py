"""The verdicts as JSON, as `qualify` prints them and keeps them beside the records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpulift.qualify.checks import CheckResult, basis, coverage
from gpulift.qualify.explain import as_data, standing_data
from gpulift.qualify.siblings import Siblings
from gpulift.report.summary import Summary
from gpulift.runs import write_error

VERDICT_FILE = "qualification.json"
SIBLINGS_FILE = "siblings.json"


def document(summary: Summary, results: Sequence[CheckResult]) -> dict[str, Any]:
    """The verdicts on one card, or on a machine without one."""
    return {
        "run": summary.run.name,
        "method": summary.run.records[0].method,
        "basis": basis(summary),
        "coverage": coverage(results),
        "checks": [as_data(result) for result in results],
    }


def siblings_document(found: Siblings, results: Sequence[CheckResult]) -> dict[str, Any]:
    """What the cards of a machine say of each other; crowding is speed together / speed alone."""
    return {
        "cards": list(found.cards),
        "note": found.note,
        "checks": [as_data(result) for result in results],
        "outliers": [standing_data(one) for one in found.outliers],
        "crowding": [asdict(one) for one in found.crowding],
    }


def save(file: Path, document: Mapping[str, Any]) -> None:
    """Writes it. Raises GpuliftError where the file cannot be written."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise write_error(file, error) from None
