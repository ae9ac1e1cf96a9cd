"""What a script's `make` reaches, over the modules that it imports from this repository, and a hash
of what that means: of `training.py` what an arm uses counts, and no comma.

Where it cannot be told what a name stands for, more is taken: a class whole, a module whole that is
handed on as an object or named in a text, and all statements of an imported module that do
something as it is imported.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

from gpulift_syntax import Meaning, bound_by, is_plain, is_without_effect, meaning_of, parsed

RULE = "gpulift source 1"  # in all hashes: another rule has another number
ENTRY = "make"  # what the worker calls of a script
DECLARATION = "TECHNIQUE"  # which the manifest holds: a text changes no work
STARTED_WITH = {"environment", "preload"}  # what of it changes what arms do
ENGINE = frozenset(  # what a record's method names
    f"gpulift_{name}.py" for name in ("worker", "manifest", "closure", "syntax", "cpu")
)
AS_PROGRAM = ("__file__", "__name__")  # who reads these may start the module as a program
# Calls that make a constant and do nothing else. Those of classes are such, too.
PLAIN_CALLS = {"cast", "compile", "dtype", "frozenset", "partial", "replace", "slice", "tuple"}
IMPORTERS = {"import_module", "__import__"}
WHOLE = "*"
DOTTED = re.compile(r"\w+(\.\w+)+")

Read = Callable[[str], "bytes | None"]  # the content of a file by its path; None: none of ours
Origins = Mapping[str, "set[str]"]  # what imports bind: dotted names of what may be behind a name


@dataclass(frozen=True, eq=False)
class Entry:
    """A top-level statement of a module, and the names that it binds."""

    names: tuple[str, ...]
    statement: ast.stmt
    has_effect: bool


class Module:
    """A module of ours; throws SyntaxError and ValueError where it is no Python."""

    def __init__(self, path: str, dotted: str, content: bytes) -> None:
        self.path = path
        self.package = dotted if path.endswith("__init__.py") else dotted.rpartition(".")[0]
        tree = parsed(content)
        self.entries = [entry for one in tree.body if (entry := _entry_of(one)) is not None]
        top = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
        done = [one.statement for one in self.entries if not _is_definition(one.statement)]
        self.imports = self._bound([*top, *_imports_in(*done)])
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        # Names that stand nowhere are imported for what importing does.
        self.unused = sorted(
            origin
            for name, origins in self._bound(top).items()
            for origin in origins
            if name not in read and not origin.startswith("__future__.")
        )
        bound = {name for entry in self.entries for name in entry.names}
        self._certain = self._bound(top).keys() - bound - self._bound(_imports_in(*done)).keys()
        self._meanings: dict[Entry, Meaning] = {}

    def binding(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries if name in entry.names]

    def inner(self, entry: Entry) -> Origins:
        """What the imports inside of the statement bind."""
        return self._bound(_imports_in(entry.statement))

    def meaning(self, entry: Entry) -> Meaning:
        """Its text has for a name what is behind it, where one import alone can have bound it, and
        behind all else what may have."""
        if entry not in self._meanings:
            inner = self.inner(entry)
            tried = self._bound(_imports_in(*_tries_in(entry.statement)))
            certain = (self._certain | inner.keys()) - tried.keys()
            behind = {name: self._behind(name, inner) for name in certain}
            names = {name: min(of) for name, of in behind.items() if len(of) == 1}
            nodes = ast.walk(entry.statement)
            read = {node.id for node in nodes if isinstance(node, ast.Name)}
            meaning = meaning_of([entry.statement], names, inner.keys() - read)
            doubtful = read & (self.imports.keys() | inner.keys()) - names.keys()
            may_be = {name: sorted(self._behind(name, inner)) for name in sorted(doubtful)}
            meaning.text += json.dumps(may_be) if may_be else ""
            self._meanings[entry] = meaning
        return self._meanings[entry]

    def _behind(self, name: str, inner: Origins) -> set[str]:
        return self.imports.get(name, set()) | inner.get(name, set())

    def _bound(self, imports: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, set[str]]:
        bound: dict[str, set[str]] = {}
        for one in imports:
            for name, origin in bound_by(one, self.package):
                bound.setdefault(name, set()).add(origin)
        return bound


class Closure:
    """What is reached from a script, which no module of ours imports."""

    def __init__(self, path: str, script: bytes, read: Read) -> None:
        self._read = read
        self._others = {*ENGINE, path}
        self._modules: dict[str, Module | None] = {"": _module(path, "", script)}
        self._reached: dict[str, set[Entry]] = {}
        self._left: list[tuple[str, Module, Entry]] = []
        self._taken: set[tuple[str, str]] = set()
        self._load("")
        self._take("", ENTRY)
        while self._left:
            self._follow(*self._left.pop())

    def sums(self) -> dict[str, str]:
        """SHA-256 of what is reached of each module, by its path."""
        sums = {}
        for dotted, taken in self._reached.items():
            module = self._module(dotted)
            if module is not None and (taken or module.unused or not dotted):
                sums[module.path] = _sum(module, taken)
        return sums

    def _module(self, dotted: str) -> Module | None:
        if dotted not in self._modules:
            self._modules[dotted] = None
            above = dotted.replace(".", "/")
            for path in (f"{above}/__init__.py", f"{above}.py"):
                content = None if path in self._others else self._read(path)
                if content is not None:
                    self._modules[dotted] = _module(path, dotted, content)
        return self._modules[dotted]

    def _load(self, dotted: str) -> None:
        """Importing a module does its statements, and imports what it does at its top."""
        module = self._module(dotted)
        if module is None or dotted in self._reached:
            return
        self._reached[dotted] = set()
        for name, origins in module.imports.items():
            for origin in origins:
                (self._take_origin if name == WHOLE else self._found)(origin)
        for entry in module.entries:
            if entry.has_effect:
                self._reach(dotted, module, entry)

    def _found(self, origin: str) -> tuple[str, str] | None:
        """The module of ours that a dotted name begins with, imported with those above it, and the
        name that is read off it."""
        found = None
        parts = origin.split(".")
        for count in range(1, len(parts) + 1):
            dotted = ".".join(parts[:count])
            if self._module(dotted) is not None:
                self._load(dotted)
                found = (dotted, parts[count] if count < len(parts) else WHOLE)
        return found

    def _take(self, dotted: str, name: str) -> None:
        """What has this name in a module, or all of it where nothing has."""
        module = self._module(dotted)
        if module is None or (dotted, name) in self._taken:
            return
        self._taken.add((dotted, name))
        is_known = module.binding(name) or name in module.imports
        for entry in module.binding(name) if is_known else module.entries:
            self._reach(dotted, module, entry)
        for imported, origins in module.imports.items():
            if imported == name or not is_known:
                for origin in origins:
                    self._take_origin(origin)

    def _take_origin(self, origin: str) -> None:
        if (found := self._found(origin)) is not None:
            self._take(*found)

    def _reach(self, dotted: str, module: Module, entry: Entry) -> None:
        if entry not in self._reached[dotted]:
            self._reached[dotted].add(entry)
            self._left.append((dotted, module, entry))

    def _follow(self, dotted: str, module: Module, entry: Entry) -> None:
        """Reaches what an entry refers to."""
        inner, meaning = module.inner(entry), module.meaning(entry)
        for origins in inner.values():
            for origin in origins:
                self._found(origin)
        for root, attributes in meaning.chains:
            for origin in {*module.imports.get(root, ()), *inner.get(root, ())}:
                self._take_origin(".".join([origin, *attributes]))
            for other in module.binding(root):
                self._reach(dotted, module, other)
        asks = any({root, *read} & IMPORTERS for root, read in meaning.chains)
        named = filter(None if asks else DOTTED.fullmatch, meaning.words)
        for found in filter(None, map(self._found, named)):
            if found[1] == WHOLE:  # to be imported by its name, or started as a program
                self._take(*found)


def _sum(module: Module, taken: set[Entry]) -> str:
    """Definitions in any order, what does something in its own."""
    found = [entry for entry in module.entries if entry in taken]
    texts = {entry: module.meaning(entry).text for entry in found}
    plain: dict[str, list[str]] = {}
    for entry in found:
        if not entry.has_effect:
            plain.setdefault(",".join(entry.names), []).append(texts[entry])
    done = [texts[entry] for entry in found if entry.has_effect]
    told = json.dumps([RULE, plain, done, module.unused], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


@lru_cache(maxsize=1024)
def _module(path: str, dotted: str, content: bytes) -> Module:
    try:
        return Module(path, dotted, content)
    except SyntaxError as error:
        error.filename = path
        raise


def _entry_of(statement: ast.stmt) -> Entry | None:
    """None of what is counted elsewhere or does nothing."""
    if isinstance(statement, ast.Import | ast.ImportFrom) or is_without_effect(statement):
        return None
    if _is_definition(statement):
        return Entry((statement.name,), statement, not all(map(is_plain, statement.decorator_list)))
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = _names_of(targets)
        if names == (DECLARATION,):
            return _started_with(statement.value)
        if names:
            return Entry(names, statement, _does_something(statement))
    if isinstance(statement, ast.If) and not statement.orelse:
        if _reads(statement.test) == "TYPE_CHECKING":
            return None
        if ast.unparse(statement.test).replace('"', "'") == "__name__ == '__main__'":
            return Entry(AS_PROGRAM, statement, has_effect=False)
    return Entry((), statement, has_effect=True)


def _started_with(declaration: ast.expr | None) -> Entry | None:
    """What workers of arms are started with."""
    if not isinstance(declaration, ast.Dict):
        return None
    pairs = zip(declaration.keys, declaration.values, strict=True)
    kept = [
        (key, value)
        for key, value in pairs
        if isinstance(key, ast.Constant) and key.value in STARTED_WITH
    ]
    if not kept:
        return None
    keys, values = map(list, zip(*kept, strict=True))
    statement = ast.copy_location(ast.Expr(ast.Dict(keys, values)), declaration)
    return Entry((), ast.fix_missing_locations(statement), has_effect=True)


def _is_definition(
    statement: ast.stmt,
) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _names_of(targets: Iterable[ast.expr]) -> tuple[str, ...]:
    """None where one is no name, as an attribute of something else."""
    names: list[str] = []
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        if not all(isinstance(one, ast.Name) for one in parts):
            return ()
        names += [_reads(one) for one in parts]
    return tuple(names)


def _reads(expression: ast.expr) -> str:
    """The last name of `a.b.c`."""
    return getattr(expression, "attr", getattr(expression, "id", ""))


def _does_something(statement: ast.stmt) -> bool:
    """Whether a value comes of a call that may do more than make it."""
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        if isinstance(node, ast.Lambda):
            continue  # what it calls, it calls later
        if isinstance(node, ast.Call):
            name = _reads(node.func)
            if not name[:1].isupper() and name not in PLAIN_CALLS:
                return True
        left += ast.iter_child_nodes(node)
    return False


def _imports_in(*statements: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node


def _tries_in(statement: ast.stmt) -> Iterator[ast.AST]:
    return (node for node in ast.walk(statement) if isinstance(node, ast.Try))
