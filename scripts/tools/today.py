"""results/today.json, what techniques are today: `python -m tools.today`, from the manifests of the
build.

What the build lacks, as without LibTorch or where a part is built, stays as it was; what has
neither a manifest nor a file any more is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from gpulift.analysis.today import FILE, GONE, digest_of
from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError
from tools.page import write_page

SUFFIXES = (".cpp", ".cu", ".py")


def made(results: Path, modules: Path) -> str:
    """The content of the file, from the one that is there, and these manifests."""
    manifests = [json.loads(file.read_bytes()) for file in sorted(modules.glob("*.json"))]
    techniques: dict[str, Any] = {one["id"]: GONE for one in manifests}
    if (results / FILE).is_file():
        before = json.loads((results / FILE).read_bytes())["techniques"]
        here = {id for id in before if id in techniques or _has_file(results.parent, id)}
        techniques = {id: one if id in here else GONE for id, one in before.items()}
    for one in manifests:
        if not one.get("unavailable"):
            techniques[one["id"]] = declared(one)
    return f'{{\n"techniques": {lines(techniques)}\n}}\n'


def declared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says of a technique, from its manifest. Throws GpuliftError where its cases are
    not all that its axes give."""
    points = [case["point"] for case in manifest["cases"]]
    sweep = {axis: list(dict.fromkeys(one[axis] for one in points)) for axis in points[0]}
    if [tuple(one.values()) for one in points] != list(product(*sweep.values())):
        raise GpuliftError(f"{manifest['id']}: its cases are not all of its axes' values")
    text = digest_of(manifest["source"])
    controls = {"controls": manifest["controls"]} if manifest.get("controls") else {}
    return {"arms": manifest["arms"], **controls, "sweep": sweep, "text": text}


def _has_file(root: Path, technique: str) -> bool:
    return any((root / "benches" / f"{technique}{suffix}").is_file() for suffix in SUFFIXES)


def lines(entries: Mapping[str, Any]) -> str:
    """An object with a line for each entry, in order, so that changes of several merge."""
    told = (f"{json.dumps(key)}: {json.dumps(one)}" for key, one in sorted(entries.items()))
    return "{\n" + ",\n".join(told) + "\n}"


if __name__ == "__main__":
    write_page(FILE, lambda results: made(results, machine.find_bench().parent / "modules"))
