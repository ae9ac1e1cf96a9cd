"""Releases of torch: which one is asked for, and the lock files that are its own.

Those of the newest that was tried lie here, beside the default's. Of another one pip resolves them, to what agrees with
the other groups.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import packages
import toolkit
from packages import SETUP, SetupError, say

OLDEST = (2, 11)
NEWEST_TRIED = (2, 15)
NEWEST_FROM = (3, 11)  # of Python: for older ones there is none of the newest
OFF, ON = ("off", "0", "no", "false"), ("", "on", "1", "yes", "true")
# In the order in which they are resolved: torch takes any version of what its toolkit wants one of.
GROUPS = ("cuda", "torch")
OTHERS = ("base", "tools", "arms")
NO_TORCH = "it has no torch"
# Of the torch that is imported, of which the environment may have two.
_TORCH = "import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)"
IMPORT_LIMIT_S = 600  # of torch, from a slow disk


def numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def chosen() -> str:
    """What GPULIFT_TORCH says, whatever it is."""
    return os.environ.get("GPULIFT_TORCH", "").lower()


def pinned(file: Path) -> str:
    """The version of torch that a file of requirements takes."""
    lines = (line for line in file.read_text().splitlines() if line.startswith("torch=="))
    return next(lines).split()[0].removeprefix("torch==")


def default() -> str:
    """The release that is taken where none is asked for."""
    return pinned(SETUP / "torch.in")


def is_of(version: str, release: str) -> bool:
    """Whether a version, like 2.13.0+cu130, is of a release, like 2.13 or 2.13.0."""
    return f"{version.split('+')[0]}.".startswith(f"{release}.")


def asked() -> str:
    """The release that GPULIFT_TORCH names; empty if it names none."""
    release = chosen()
    if release in OFF + ON:
        return ""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9}){1,2}", release):
        raise SetupError(f"torch {release}: name a release like 2.13, or off")
    if numbers(release) < OLDEST:
        raise SetupError(f"torch {release} is too old: name one from {'.'.join(map(str, OLDEST))} on")
    return release


def tell_untried(version: str) -> None:
    """Say it of one that is newer than those that we know."""
    if numbers(version)[:2] > NEWEST_TRIED:
        newest = ".".join(map(str, NEWEST_TRIED))
        say(f"torch {version} is untested: {newest} is the newest that gpulift was tried with; going on")


def why_unsuitable() -> str:
    """Why the running Python's torch cannot be used; empty if it can."""
    if importlib.util.find_spec("torch") is None:
        return NO_TORCH
    said = toolkit.output_of([sys.executable, "-c", _TORCH], IMPORT_LIMIT_S).strip()
    known = re.search(r"^(\d\S*) (None|[\d.]+) (None|\S+)$", said, re.MULTILINE)
    if not known:
        return f"its torch cannot be imported: {said.splitlines()[-1] if said else 'no reason given'}"
    version, cuda, hip = known.groups()
    if (release := asked()) and not is_of(version, release):
        return f"its torch is {version}, and {release} is asked for"
    if numbers(version) < OLDEST:
        return f"its torch is {version}, and {'.'.join(map(str, OLDEST))} or later is needed"
    if hip != "None":
        return f"its torch {version} is ROCm's, and one for CUDA 13 is needed"
    if not cuda.startswith("13."):
        made = "without CUDA" if cuda == "None" else f"for CUDA {cuda}"
        return f"its torch {version} is built {made}, and 13 is needed"
    tell_untried(version)
    return ""


def inputs(torch: str, cuda: str) -> dict[str, str]:
    """What there is to resolve of each group, for this torch and the CUDA toolkit that it is made with."""
    pins = {
        r"^torch==.*": f"torch=={torch}",
        r"^torchvision==.*": "torchvision",
        r"^(cuda-toolkit\[.*\])==.*": rf"\1=={cuda}",
        r"^(nvidia-cuda-crt|nvidia-nvvm)==.*": rf"\1=={'.'.join(cuda.split('.')[:2])}.*",
    }
    found = {group: (SETUP / f"{group}.in").read_text() for group in GROUPS}
    for pattern, pin in pins.items():
        found = {group: re.sub(pattern, pin, text, flags=re.MULTILINE) for group, text in found.items()}
    return found


def committed(release: str) -> dict[str, Path]:
    """The lock files of this release that lie here; none if there are none."""
    line = ".".join(release.split(".")[:2])
    files = {group: SETUP / f"requirements-{group}-{line}.txt" for group in GROUPS}
    if sys.version_info < NEWEST_FROM or not all(file.exists() for file in files.values()):
        return {}
    return files if is_of(pinned(files["torch"]), release) else {}


def key(release: str) -> str:
    """The name of a folder for what is resolved: of another Python, or other groups, it is resolved anew."""
    files = [SETUP / f"{group}.in" for group in GROUPS] + [SETUP / f"requirements-{group}.txt" for group in OTHERS]
    said = b"".join(file.read_bytes() for file in files) + sys.version.encode()
    return f"torch-{release}-{hashlib.sha256(said).hexdigest()[:12]}"


def made_with(python: Path, release: str) -> tuple[str, str]:
    """The newest torch of a release, and the version of the CUDA toolkit that it wants."""
    pin = f"torch=={release}" if len(numbers(release)) > 2 else f"torch=={release}.*"
    found = json.loads(packages.report(python, ["--no-deps", *packages.wheelhouse_arguments(), pin]))
    metadata = found["install"][0]["metadata"]
    wanted = re.search(r"cuda-toolkit\[[^]]*\]==(13[\d.]*)", "\n".join(metadata.get("requires_dist", [])))
    if not wanted:
        raise SetupError(
            f"torch {metadata['version']}, as your package index has it, is not made for CUDA 13: "
            "take the one of PyPI, or name another release"
        )
    return metadata["version"], wanted[1]


def resolve(python: Path, release: str, folder: Path) -> None:
    """Write the lock files of a release into a folder, by the pip of `python`: what fits this machine alone."""
    torch, cuda = made_with(python, release)
    constraints = [
        block.split("\\")[0].strip()
        for group in OTHERS
        for _, block in packages.locked_blocks((SETUP / f"requirements-{group}.txt").read_text())
    ]
    folder.mkdir(parents=True)
    for group, text in inputs(torch, cuda).items():
        found = packages.resolved(python, text, constraints, folder)
        (folder / f"requirements-{group}.txt").write_text("".join(f"{block}\n" for _, block in sorted(found.items())))
        constraints += [block.split(" ")[0] for block in found.values()]
