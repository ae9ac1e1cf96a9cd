"""A folder that MLflow takes for its store of files, or migrates to a database: an experiment for
each technique, a run for each arm of a case.

As FileStore of MLflow 2 and 3 reads it: a folder for each of these, with meta.yaml, of which JSON
is a part, and a file for each metric, parameter and tag.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gpulift.exchange import by_case
from gpulift.exchange.rows import Scalar
from gpulift.ground.errors import GpuliftError, write_error
from gpulift.ground.text import visible
from gpulift.ground.whole import whole_folder
from gpulift.records.read import Run
from gpulift.verdicts.cases import Case

STATES = {"ok": 3, "skipped": 5}  # finished and killed
FAILED = 4
LONGEST = 200  # an axis of a foreign record may have any name
PARAMETERS = ("gpu", "technique", "case", "arm", "baseline", "regime")


def write(runs: Sequence[Run], out: Path) -> None:
    """All of it or nothing. Raises GpuliftError for a folder that holds anything, and for what
    cannot be written."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise GpuliftError(f"{out}: is there already and not empty; name another folder")
        with whole_folder(out.resolve()) as aside:
            for case, row in by_case.rows(runs):
                _write_run(aside, out.resolve().as_uri(), case, row)
    except OSError as error:
        raise write_error(out, error) from None


def _write_run(aside: Path, uri: str, case: Case, row: Mapping[str, Scalar]) -> None:
    experiment = str(int(_hash(case.technique)[:15], 16))
    run = _hash(*(row.get(key) for key in ("gpu", "run", "kind", "record", "arm")))[:32]
    start_ms = _milliseconds(case.first.began_at)
    made = {"name": case.technique, "artifact_location": f"{uri}/{experiment}"}
    times = {"creation_time": start_ms, "last_update_time": start_ms}
    _write_meta(aside / experiment, {**made, **times, "experiment_id": experiment})
    folder = aside / experiment / run
    ids = {"run_id": run, "run_uuid": run, "experiment_id": experiment, "user_id": ""}
    state = STATES.get(str(row["outcome"]), FAILED)
    times = {"start_time": start_ms, "end_time": start_ms, "status": state}
    name = " ".join(filter(None, (str(row.get("arm", "")), case.case_id)))
    place = {"run_name": name, "artifact_uri": f"{uri}/{experiment}/{run}/artifacts"}
    _write_meta(folder, {**ids, **times, **place})
    numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
    told = {key: value for key, value in row.items() if key not in {*PARAMETERS, *numbers}}
    axes = {f"case.{axis}": value for axis, value in case.first.case.items()}
    _write_values(folder / "metrics", {k: f"{start_ms} {v!r} 0" for k, v in numbers.items()})
    _write_values(folder / "params", {**{key: row.get(key) for key in PARAMETERS}, **axes})
    _write_values(folder / "tags", {"mlflow.runName": name, **told})
    _write_values(folder / "artifacts", {})


def _write_meta(folder: Path, values: Mapping[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    text = json.dumps({"lifecycle_stage": "active", **values}, ensure_ascii=False)
    (folder / "meta.yaml").write_text(visible(text), encoding="utf-8")


def _write_values(folder: Path, values: Mapping[str, Scalar]) -> None:
    folder.mkdir()
    for key, value in values.items():
        if value not in (None, ""):
            plain = re.sub(r"[^\w.-]", "_", key, flags=re.ASCII)
            file = folder / plain[:LONGEST]
            file.write_text(visible(str(value)), encoding="utf-8")


def _hash(*values: Scalar) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _milliseconds(moment: str) -> int:
    """Since 1970; 0 for an import that does not know when it was measured."""
    try:
        return round(datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1e3)
    except ValueError:
        return 0
