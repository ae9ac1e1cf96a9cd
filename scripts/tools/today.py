"""results/today.json, what techniques are today: `python -m tools.today`, from the manifests of the
build. What that build lacks, as without LibTorch, stays as it was; what has no manifest is gone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpulift.analysis.today import FILE, GONE, declared_in, written
from gpulift.engine import machine
from tools.page import write_page


def made(results: Path, modules: Path) -> str:
    """The content of the file, from the one that is there and these manifests."""
    manifests = [json.loads(file.read_bytes()) for file in sorted(modules.glob("*.json"))]
    built = {one["id"] for one in manifests}
    file = results / FILE
    before: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {}
    kept = {id: one if id in built else GONE for id, one in before.items()}
    return written({**kept, **declared_in(manifests)})


if __name__ == "__main__":
    write_page(FILE, lambda results: made(results, machine.find_bench().parent / "modules"))
