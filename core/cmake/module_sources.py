"""What a module is made of in this repository, in the lines of `sha256sum`; the build calls it.

The hash of a file is of its tokens, without comments, white space and includes: what these reach
has hashes of its own. The technique's own files stand by their names, kernels and workloads by
their paths. Of the technique its declaration is left out, which the manifest holds: a text changes
no work.

The files are those that includes reach from the technique's own, and of each header of kernels or
workloads its implementation, so that the answer is the same on all machines, whatever was built.
The engine, `core/`, is left out: a record names its method.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from gpulift_closure import RULE
from gpulift_manifest import ManifestError, sources_of_script

WORK = ("kernels/", "workloads/")
ENGINE = "core/"
COMPILED = (".cpp", ".cu")
HEADERS = (".hpp", ".cuh")
DECLARATION = re.compile(rb"^const gpulift::Technique gpulift::technique\{.*?^\};$", re.M | re.S)
TOKEN = re.compile(
    r"""
    (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
  | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)" )
  | (?P<text> (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" )
  | (?P<character> (?:u8|[uUL])?'(?:\\.|[^'\\\n])*' )
  | (?P<number> \.?\d(?:[eEpP][+-]|'?[\w.])* )
  | (?P<name> \w+ )
  | (?P<line> \n )
  | (?P<space> [^\S\n]+ | \\\n )
  | (?P<sign> <<<|>>>|<<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=
      | \#\# | . )
    """,
    re.X | re.S,
)
INCLUDE = re.compile(r'\s*include\s*(?:"(?P<own>[^"\n]+)"|<[^>\n]+>)[^\n]*')
ONCE = re.compile(r"\s*pragma\s+once\b[^\n]*")
NUMBERED_ESCAPE = re.compile(r"\\[x0-7]")  # which a text behind it could become a part of

Read = Callable[[str], "bytes | None"]  # of a file by its path; None where there is none


@dataclass(frozen=True)
class Text:
    """A file's tokens, and the files that it includes in quotes."""

    tokens: tuple[str, ...]
    includes: frozenset[str]


class Tree:
    """Files of a state of this repository: those of kernels and workloads, and how all are read."""

    def __init__(self, work: Iterable[str], read: Read) -> None:
        self.read = lru_cache(maxsize=None)(read)
        self._work = {one for one in work if one.startswith(WORK) and not _is_of_tests(one)}

    def find(self, name: str, includer: str) -> str | None:
        """The path of what a file includes by this name; None of what is not of this repository."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(includer), name))
        return next((one for one in (beside, name) if self.read(one) is not None), None)

    def implementations(self, header: str) -> Iterator[str]:
        """Of a header of kernels or workloads: the file of its name, and those of its folder that
        include it and have no header of their name."""
        stem = posixpath.splitext(header)[0]
        yield from (one for ending in COMPILED if (one := f"{stem}{ending}") in self._work)
        for one in self._nameless.get(posixpath.dirname(header), ()):
            content = self.read(one)
            if content is not None and header in self.included(one, content):
                yield one

    def included(self, path: str, content: bytes) -> set[str]:
        """Paths of the files of this repository but the engine that a file includes."""
        found = (self.find(name, path) for name in text_of(content).includes)
        return {one for one in found if one is not None and not one.startswith(ENGINE)}

    @cached_property
    def _nameless(self) -> dict[str, list[str]]:
        by_folder: dict[str, list[str]] = {}
        for one in sorted(self._work):
            stem, ending = posixpath.splitext(one)
            if ending in COMPILED and not any(f"{stem}{of}" in self._work for of in HEADERS):
                by_folder.setdefault(posixpath.dirname(one), []).append(one)
        return by_folder


def files_of(tree: Tree, source: str) -> dict[str, str]:
    """Paths by name, of a technique's file and all that it reaches; throws OSError."""
    folder = posixpath.dirname(source)
    paths: dict[str, str] = {}
    left = [source]
    while left:
        path = left.pop()
        content = tree.read(path)
        name = _name(path, folder)
        if content is None or name in paths:
            continue
        paths[name] = path
        includes = tree.included(path, without_declaration(content))
        left += includes
        left += (other for one in includes for other in tree.implementations(one))
    return paths


def sources_in(tree: Tree, source: str) -> dict[str, str]:
    """SHA-256 by name, of the same."""
    return {name: _sum(tree.read(path) or b"") for name, path in files_of(tree, source).items()}


@lru_cache(maxsize=4096)
def text_of(content: bytes) -> Text:
    """What a compiler is given to read."""
    text = content.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    tokens: list[str] = []
    includes: set[str] = set()
    place, begins_line, is_directive = 0, True, False
    while match := TOKEN.match(text, place):
        place, kind, token = match.end(), match.lastgroup, match[0]
        if kind in ("comment", "space"):
            continue
        if kind == "line":
            tokens += ["#end"] * is_directive
            begins_line, is_directive = True, False
            continue
        if token == "#" and begins_line:
            if dropped := INCLUDE.match(text, place) or ONCE.match(text, place):
                place = dropped.end()
                includes.update(filter(None, [dropped.groupdict().get("own")]))
                continue
            is_directive = True
        begins_line = False
        _append(tokens, kind, token)
    return Text(tuple(tokens), frozenset(includes))


def without_declaration(source: bytes) -> bytes:
    """What is left of a technique's file without its one exported object."""
    return DECLARATION.sub(b"", source)


def _sum(content: bytes) -> str:
    told = json.dumps([RULE, text_of(without_declaration(content)).tokens])
    return hashlib.sha256(told.encode()).hexdigest()


def _append(tokens: list[str], kind: str | None, token: str) -> None:
    """Of texts side by side one is made: a formatter cuts long ones."""
    if kind == "number":
        token = token.replace("'", "")
    before = tokens[-1] if tokens else ""
    are_texts = token.startswith('"') and before.startswith('"')
    if are_texts and not NUMBERED_ESCAPE.search(before):
        tokens[-1] = f"{before[:-1]}{token[1:]}"
    else:
        tokens.append(token)


def _name(path: str, folder: str) -> str:
    is_beside = not path.startswith(WORK) and path.startswith(f"{folder}/")
    return path[len(folder) + 1 :] if is_beside else path


def _is_of_tests(path: str) -> bool:
    return "testing" in path.split("/") or posixpath.splitext(path)[0].endswith("_test")


def checkout(root: Path) -> Tree:
    """The files as they are in a folder."""

    def read(path: str) -> bytes | None:
        file = root / path
        return file.read_bytes() if file.is_file() else None

    found = (file for above in WORK for file in (root / above).rglob("*"))
    return Tree((str(file.relative_to(root)) for file in found), read)


def rule(stamp: Path, files: Iterable[Path]) -> str:
    """As `make` reads it."""
    target, *names = (str(one).replace(" ", "\\ ") for one in (stamp, *sorted(files)))
    return f"{target}: {' '.join(names)}\n"


def main(words: Sequence[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--files", nargs="+", type=Path, required=True)
    parser.add_argument("--stamp", type=Path, help="what the build makes of the answer")
    parser.add_argument("--depfile", type=Path, help="takes what --stamp is to be made anew for")
    arguments = parser.parse_args(words)
    root = arguments.root.resolve()
    source, *scripts = (file.resolve() for file in arguments.files)
    path = source.relative_to(root) if source.is_relative_to(root) else source
    try:
        tree = checkout(root)
        sums = sources_in(tree, str(path))
        for script in scripts:
            sums |= sources_of_script(script.name, script)
        if arguments.depfile is not None:
            files = [root / one for one in files_of(tree, str(path)).values()]
            arguments.depfile.write_text(rule(arguments.stamp, files), encoding="utf-8")
    except (ManifestError, OSError) as error:
        print(f"{source.name}: {error}", file=sys.stderr)
        return 1
    for name, digest in sorted(sums.items()):
        print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
