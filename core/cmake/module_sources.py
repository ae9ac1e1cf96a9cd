"""What a module is made of in this repository, in the lines of `sha256sum`.

The technique's own files stand by their names, kernels and workloads by their paths. The build
calls it behind the linker. Of the technique its declaration is left out, which the manifest holds:
a text changes no work.

The linker's map tells which members of archives are in the module, ninja's log of dependencies
what each object was compiled from. The engine, `core/`, is left out: a record names its method.
Exits with 1 and one line where either does not tell: half of the files would be no fingerprint.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from gpulift_manifest import modules_of

MEMBER = re.compile(r"([^\s()]+\.a)\(([^\s()]+\.o)\)")  # as GNU ld, lld and mold write it
WORK = ("kernels", "workloads")
DECLARATION = re.compile(rb"^const gpulift::Technique gpulift::technique\{.*?^\};$", re.M | re.S)


class SourceError(Exception):
    """What is not known, in one line."""


def members_of(link_map: Path, build: Path) -> dict[Path, set[str]]:
    """The members that the linker took, by archive of this build."""
    try:
        text = link_map.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(
            f"no map of the linker: {error.strerror}: {link_map.name}; build it again"
        ) from error
    members: dict[Path, set[str]] = {}
    for archive, member in MEMBER.findall(text):
        path = (build / archive).resolve()
        if path.is_relative_to(build):
            members.setdefault(path, set()).add(member)
    return members


def asked(ninja: str, build: Path, *words: str) -> list[str]:
    """Lines of a tool of ninja, which by -n writes no log of the build that may go on."""
    command = [ninja, "-C", str(build), "-n", "-t", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SourceError(f"ninja -t {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.splitlines()


def objects_of(ninja: str, build: Path, members: dict[Path, set[str]]) -> list[str]:
    """The objects behind these members, as ninja names them."""
    found: list[str] = []
    for archive, names in sorted(members.items()):
        lines = asked(ninja, build, "query", str(archive.relative_to(build)))
        inputs = [line.strip() for line in lines if line.startswith("    ")]
        objects = [one for one in inputs if one.endswith(".o") and Path(one).name in names]
        if missing := names - {Path(one).name for one in objects}:
            raise SourceError(f"{archive.name} has {min(missing)}, of which ninja knows nothing")
        found += objects
    return found


def dependencies_of(ninja: str, build: Path, objects: Sequence[str]) -> set[Path]:
    """All files that these objects were compiled from."""
    lines = asked(ninja, build, "deps", *objects)
    told = {line.partition(":")[0] for line in lines if ": #deps " in line}
    if missing := [one for one in objects if one not in told]:
        raise SourceError(f"ninja has no dependencies of {missing[0]}: build it again")
    return {(build / line.strip()).resolve() for line in lines if line.startswith("    ")}


def named(files: Iterable[Path], folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Those of the technique by their paths in its folder, those of the repository by theirs."""
    for file in sorted(files):
        if file.is_relative_to(root) and file.relative_to(root).parts[0] in WORK:
            yield str(file.relative_to(root)), file
        elif file.is_relative_to(folder):
            yield str(file.relative_to(folder)), file


def without_declaration(source: bytes) -> bytes:
    """What is left of a technique's file without its one exported object."""
    return DECLARATION.sub(b"", source)


def sources_of(arguments: argparse.Namespace) -> dict[str, str]:
    """SHA-256 by name."""
    root, build = arguments.root.resolve(), arguments.build.resolve()
    own = [file.resolve() for file in arguments.files]
    members = members_of(arguments.map, build)
    compiled = [str(one.relative_to(build)) for one in arguments.objects]
    objects = [*compiled, *objects_of(arguments.ninja, build, members)]
    files = {*own, *dependencies_of(arguments.ninja, build, objects)}
    sums = {
        name: hashlib.sha256(without_declaration(file.read_bytes())).hexdigest()
        for name, file in named(files, own[0].parent, root)
    }
    for script in (file for file in own if file.suffix == ".py"):
        sums |= modules_of(script)
    return sums


def main(words: Sequence[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--ninja", required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--map", type=Path, required=True)
    parser.add_argument("--objects", nargs="+", type=Path, required=True)
    parser.add_argument("--files", nargs="+", type=Path, required=True)
    arguments = parser.parse_args(words)
    try:
        sums = sources_of(arguments)
    except (SourceError, OSError) as error:
        print(f"{arguments.files[0].name}: {error}", file=sys.stderr)
        return 1
    for name, digest in sorted(sums.items()):
        print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
