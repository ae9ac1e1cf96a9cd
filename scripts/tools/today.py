"""results/today.json, what techniques are today: `python -m tools.today`, from the manifests of the
build and the files of this checkout.

What the build lacks, as without LibTorch or where a part is built, stays as it was; what has
neither a manifest nor a file any more is gone. Builds differ in which shared files an arm is made
of, so that all of these stand there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from gpulift.analysis.today import DIGITS, FILE, GONE
from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError
from tools.page import write_page

SUFFIXES = (".cpp", ".cu", ".cuh", ".hpp", ".py")
ENGINE = (  # a record's method
    "gpulift_case.py",
    "gpulift_cpu.py",
    "gpulift_manifest.py",
    "gpulift_worker.py",
)
TESTS = {"testing", "tests"}
MODULES = ("core/python", "workloads/python")  # whose files records name by their paths in them


def made(results: Path, modules: Path) -> str:
    """The content of the file, from the one that is there, these manifests, and the files beside
    the folder of results."""
    manifests = [json.loads(file.read_bytes()) for file in sorted(modules.glob("*.json"))]
    shared = dict(sorted(_shared(results.parent)))
    techniques: dict[str, Any] = {one["id"]: GONE for one in manifests}
    if (results / FILE).is_file():
        before = json.loads((results / FILE).read_bytes())["techniques"]
        here = {id for id in before if id in techniques or _has_file(results.parent, id)}
        techniques = {id: one if id in here else GONE for id, one in before.items()}
    for one in manifests:
        if not one.get("unavailable"):
            techniques[one["id"]] = declared(one, shared)
    return (
        '{\n"techniques": {\n'
        f'{_lines(dict(sorted(techniques.items())))}\n}},\n"files": {{\n{_lines(shared)}\n}}\n}}\n'
    )


def declared(manifest: Mapping[str, Any], shared: Mapping[str, str]) -> dict[str, Any]:
    """What the file says of a technique, from its manifest. Throws GpuliftError where its cases are
    not all that its axes give."""
    points = [case["point"] for case in manifest["cases"]]
    sweep = {axis: list(dict.fromkeys(one[axis] for one in points)) for axis in points[0]}
    if [tuple(one.values()) for one in points] != list(product(*sweep.values())):
        raise GpuliftError(f"{manifest['id']}: its cases are not all of its axes' values")
    own = {name: one[:DIGITS] for name, one in manifest["source"].items() if name not in shared}
    controls = {"controls": manifest["controls"]} if manifest.get("controls") else {}
    return {"arms": manifest["arms"], **controls, "sweep": sweep, "files": own}


def _has_file(root: Path, technique: str) -> bool:
    return any((root / "benches" / f"{technique}{suffix}").is_file() for suffix in SUFFIXES)


def _shared(root: Path) -> Iterator[tuple[str, str]]:
    """Names and hashes of what arms are made of beside their technique's own files."""
    for above in ("kernels", "workloads", "core/python"):
        for file in (root / above).rglob("*"):
            name = file.relative_to(root)
            if _is_work(name):
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
                yield _name(name), digest[:DIGITS]


def _is_work(file: Path) -> bool:
    is_test = file.stem.endswith("_test") or TESTS & {*file.parts}
    return file.suffix in SUFFIXES and not is_test and file.name not in ENGINE


def _name(file: Path) -> str:
    above = next((folder for folder in MODULES if file.is_relative_to(folder)), "")
    return str(file.relative_to(above))


def _lines(entries: Mapping[str, Any]) -> str:
    """A line each, so that changes of several merge."""
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in entries.items())


if __name__ == "__main__":
    write_page(FILE, lambda results: made(results, machine.find_bench().parent / "modules"))
