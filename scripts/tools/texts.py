"""results/texts.json, of which texts the committed records are: `python -m tools.texts`, from git.

Records below schema 1.14 hash files whole, so that a comment made them another text's. This reads
what a technique was at the commit of such a record, as tools.today reads what it is today. An entry
stays true whatever changes later, and is made anew for new records alone.

`python -m tools.texts --outdated OLD [NEW]` says how many of the records that are of the text of
one commit are no more of that of another, or of the files that are here; it writes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from gpulift.analysis.today import TEXTS, Texts, Today, digest_of, read_today
from gpulift.engine import machine
from gpulift.gate.git import LIMIT_S, git
from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import finished
from gpulift.records.files import record_files_below
from gpulift.records.model import HASHES_MEANING, Record
from gpulift.records.read import read_file
from tools.page import write_page
from tools.today import lines

sys.path.insert(0, str(Path(__file__).parents[2] / "core" / "python"))
sys.path.insert(0, str(Path(__file__).parents[2] / "core" / "cmake"))

import gpulift_manifest as scripts
import module_sources as modules
from gpulift_closure import Closure

FOLDERS = ("benches", "core", "kernels", "workloads")
PYTHON = ("core/python", "workloads/python")  # whose modules scripts import by their paths in them
ENDINGS = (".cpp", ".cu", ".py")


@dataclass(frozen=True)
class State:
    """The files of one commit, by path."""

    files: dict[str, bytes]

    @cached_property
    def tree(self) -> modules.Tree:
        return modules.Tree(self.files, self.files.get)

    @cached_property
    def techniques(self) -> list[str]:
        found = (PurePosixPath(path) for path in self.files)
        return sorted(
            {
                f"{path.parent.name}/{path.stem}"
                for path in found
                if path.suffix in ENDINGS
                and len(path.parts) == 3
                and path.parts[0] == "benches"
                and not path.stem.endswith("_test")
            }
        )

    def source(self, technique: str) -> dict[str, str]:
        """What a record of it has as its source by the rule of today; empty where it is none of
        this state, or is no program."""
        theme, _, name = technique.partition("/")
        own = [path for end in ENDINGS if (path := f"benches/{technique}{end}") in self.files]
        sums: dict[str, str] = {}
        for path in own:
            if not path.endswith(".py"):
                sums |= modules.sources_in(self.tree, path)
                continue
            try:
                read = self._reader(f"benches/{theme}")
                sums |= Closure(f"{name}.py", self.files[path], read).sums()
            except (SyntaxError, ValueError):
                return {}
        return sums

    def tells(self, technique: str, source: dict[str, str]) -> bool:
        """Whether these are hashes, by the rule before 1.14, of files of this state."""
        theme = technique.partition("/")[0]
        return all(
            any(
                digest in hashes_before(path, content)
                for above in (f"benches/{theme}", "", *PYTHON)
                if (content := self.files.get(path := str(PurePosixPath(above, name)))) is not None
            )
            for name, digest in source.items()
        )

    def _reader(self, folder: str) -> modules.Read:
        above = (folder, *PYTHON)

        def read(path: str) -> bytes | None:
            found = (self.files.get(f"{one}/{path}") for one in above)
            return next((content for content in found if content is not None), None)

        return read


def hashes_before(path: str, content: bytes) -> set[str]:
    """SHA-256 of a file whole, and without what it declares."""
    rest = modules.without_declaration(content)
    if path.endswith(".py"):
        try:
            declared = scripts.assignments(content).get("TECHNIQUE")
        except scripts.ManifestError:
            declared = None
        if declared is not None and declared.end_lineno is not None:
            kept = content.splitlines(keepends=True)
            del kept[declared.lineno - 1 : declared.end_lineno]
            rest = b"".join(kept)
    return {hashlib.sha256(one).hexdigest() for one in (content, rest)}


def state_of(root: Path, commit: str) -> State:
    """Throws GpuliftError where git does not have it."""
    there = git(root, "ls-tree", "--name-only", commit)
    if there.returncode != 0:
        raise GpuliftError(f"{commit}: {there.stderr.strip()}")
    folders = [one for one in FOLDERS if one in there.stdout.splitlines()]
    done = finished(["git", "-C", str(root), "archive", commit, *folders], LIMIT_S)
    files = {}
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and member.name.endswith((*ENDINGS, ".hpp", ".cuh")):
                files[member.name] = content.read()
    return State(files)


def state_here(root: Path) -> State:
    """Of the files that are here, committed or not."""
    found = (file for one in FOLDERS for file in (root / one).rglob("*"))
    kept = (file for file in found if file.suffix in (*ENDINGS, ".hpp", ".cuh") and file.is_file())
    return State({str(file.relative_to(root)): file.read_bytes() for file in kept})


def committed(results: Path) -> Iterator[Record]:
    """All records below a folder."""
    for file in record_files_below(results):
        yield from read_file(file).records


def texts_of(records: Iterable[Record], root: Path) -> Texts:
    """Digests by commit and technique, of records that hash files whole. What a record's own hashes
    contradict, what its commit does not have, and what was built from changed files has none."""
    by_commit: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        build = record.context.build
        if record.minor < HASHES_MEANING and build.dirty is False:
            of_commit = by_commit.setdefault(build.commit, {})
            of_commit.setdefault(record.technique, []).append(record)
    texts = {}
    for commit, by_technique in by_commit.items():
        try:
            state = state_of(root, commit)
        except GpuliftError:
            continue
        texts[commit] = {
            technique: digest_of(source)
            for technique, of in sorted(by_technique.items())
            if (source := state.source(technique))
            and all(state.tells(technique, dict(record.source)) for record in of)
        }
    return {commit: found for commit, found in texts.items() if found}


def outdated(records: Iterable[Record], today: Today, old: State, new: State) -> Counter[str]:
    """How many records of a technique are of its text in one state and not in another."""
    changed = {}
    for technique in old.techniques:
        before = old.source(technique)
        if before and before != new.source(technique):
            changed[technique] = digest_of(before)
    return Counter(
        record.technique
        for record in records
        if record.technique in changed and today.digest(record) == changed[record.technique]
    )


def made(results: Path) -> str:
    """The content of the file."""
    return f"{lines(texts_of(committed(results), results.parent))}\n"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdated", nargs="+", metavar="COMMIT")
    asked: list[str] | None = parser.parse_args(words).outdated
    root = machine.checkout_root()
    if asked is None:
        write_page(
            TEXTS, lambda results: lines(texts_of(committed(results), results.parent)) + "\n"
        )
        return
    old, *later = (state_of(root, one) for one in asked)
    new = later[0] if later else state_here(root)
    results = root / "results"
    found = outdated(committed(results), read_today(results), old, new)
    for technique, count in sorted(found.items()):
        print(f"{count:6d}  {technique}")
    print(f"{found.total():6d}  records are outdated, of {len(found)} techniques")


if __name__ == "__main__":
    main()
