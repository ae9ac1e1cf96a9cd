"""The JSON Schema of a line, made of the types of `Record`, which are what readers check.

`python -m gpulift.engine.schema` writes it anew; a test fails where it is stale.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.json import schema_components

from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError
from gpulift.ground.whole import write_whole
from gpulift.records.model import Record
from gpulift.records.parse import Renamed
from gpulift.records.values import FINITE

FILE = "schema/record.schema.json"
VERSION = "1.15"  # that gpulift-bench writes
METHOD = "1"  # of its measuring
ABOUT = """One line of a record file: one case of one technique in one launch. Units are in the \
names of keys, base SI. A value that is missing is an absent key, with a *_missing reason where \
that helps; never NaN, and null only for a window in windows.energy_j. Within a major version keys \
may be added, so unknown keys are allowed. `gpulift check` also asks that what belongs together is \
there: of what is ok the arms with a baseline, their cost, check and windows; of all else a \
reason."""
UNWRITTEN = ("written", "file", "line", "check_meaning", "duet_arm")  # or under another name
OBJECTS = {"if": {"type": "object"}, "then": {"$ref": "#/$defs/Range"}}

Json = dict[str, Any]


def schema() -> Json:
    """That of a record as it is written."""
    _, defined = schema_components(
        [Record, Renamed], schema_hook=_unknown, ref_template="#/$defs/{name}"
    )
    record, renamed = defined.pop("Record"), defined.pop("Renamed")
    properties = record["properties"] | renamed["properties"]
    record["properties"] = {key: properties[key] for key in properties if key not in UNWRITTEN}
    del defined["Telemetry"]["properties"]["ranges"]
    defined["Telemetry"]["additionalProperties"] = OBJECTS
    for kind in ("Context", "Gpu", "Host"):
        del defined[kind]["properties"]["facts"]
    title = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpulift record, schema {VERSION}",
        "description": ABOUT,
    }
    return {**title, **_plain({**record, **title, "$defs": defined})}


def text() -> str:
    """The content of the file."""
    return json.dumps(schema(), indent=2) + "\n"


def _unknown(_: type) -> Json:
    """Of a type that no line holds."""
    return {"type": "string"}


def _plain(node: Any) -> Any:
    """Without limits that every number of JSON keeps, defaults that no key may have, and the line
    breaks of docstrings."""
    if isinstance(node, str):
        return " ".join(node.split())
    if isinstance(node, list):
        return [_plain(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    return {key: _plain(inner) for key, inner in node.items() if not _says_nothing(key, inner)}


def _says_nothing(key: str, value: Any) -> bool:
    return (key == "default" and value is None) or (
        key in ("minimum", "maximum") and isinstance(value, float) and abs(value) == FINITE
    )


def _main() -> None:
    file = machine.checkout_root() / "results" / FILE
    write_whole(text(), file)


if __name__ == "__main__":
    try:
        _main()
    except GpuliftError as error:
        raise SystemExit(str(error)) from None
