"""What a piece of Python means, as a text that is the same wherever it means the same: its syntax
tree without comments, docstrings, annotations and places of imports.

The text does not hang on the version of Python that reads it: fields that a later one added and
that are empty are left out, and ast.dump(), whose form changes, is not used.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Decorators that read no annotations, and that register nothing.
PLAIN_DECORATORS = {
    "abstractmethod",
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",
    "lru_cache",
    "no_grad",
    "overload",
    "override",
    "property",
    "setter",
    "staticmethod",
    "wraps",
}
# Annotations of these are read: by dataclasses, by compilers of kernels.
READ_ANNOTATIONS = {"ClassVar", "InitVar", "KW_ONLY", "constexpr", "Constexpr"}
UNREAD = {"ctx", "kind", "type_comment", "lineno", "col_offset", "end_lineno", "end_col_offset"}

Chain = tuple[str, tuple[str, ...]]  # a name, and the attributes that are read off it
Names = Mapping[str, str]  # what imports bind: the dotted name behind each


@dataclass
class Meaning:
    """The text of a piece, and what it refers to."""

    text: str = ""
    chains: set[Chain] = field(default_factory=set)
    words: set[str] = field(default_factory=set)  # its constants of text


def parsed(source: bytes) -> ast.Module:
    """The syntax tree of a file; throws SyntaxError, and ValueError for a zero byte."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in strings: the interpreter tells later
        return ast.parse(source)


def meaning_of(statements: Sequence[ast.stmt], names: Names, unused: Iterable[str] = ()) -> Meaning:
    """Of statements in a module where imports bind these names, but for the unused ones: those
    imports are kept, since they are there for what they do."""
    writer = _Writer(names, frozenset(unused))
    text = writer.block(statements)
    return Meaning(text, writer.chains, writer.words)


def is_plain(decorator: ast.expr) -> bool:
    """Whether it is one of PLAIN_DECORATORS, called or not."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in PLAIN_DECORATORS


def bound_by(statement: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    """The names that an import binds, and the dotted name behind each; `*` for a star."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or whole, whole
        return
    above = package.split(".") if statement.level else []
    above = above[: len(above) - statement.level + 1]
    origin = ".".join([*above, *filter(None, [statement.module])])
    for alias in statement.names:
        yield alias.asname or alias.name, f"{origin}.{alias.name}"


def is_without_effect(statement: ast.stmt) -> bool:
    """A docstring or another constant, `pass`, or an annotation alone."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    return isinstance(statement, ast.Pass)


class _Writer(ast.NodeVisitor):
    """Each visit returns the text of its node."""

    def __init__(self, names: Names, unused: frozenset[str]) -> None:
        self.names = names
        self.unused = unused
        self.chains: set[Chain] = set()
        self.words: set[str] = set()

    def block(
        self, statements: Sequence[ast.stmt], *, in_class: bool = False, is_read: bool = False
    ) -> str:
        written = []
        for statement in statements:
            if in_class and isinstance(statement, ast.AnnAssign):
                written.append(self.of_field(statement, is_read))
            elif not is_without_effect(statement) and not self._is_moved(statement):
                written.append(self.of(statement))
        return f"[{','.join(written)}]"

    def of(self, value: Any) -> str:
        """Of a node, of a list of them, or of what nodes hold: names and numbers of levels."""
        if isinstance(value, ast.AST):
            text: str = self.visit(value)
            return text
        if isinstance(value, list):
            if value and isinstance(value[0], ast.stmt):
                return self.block(value)
            return f"[{','.join(map(self.of, value))}]"
        return json.dumps(value)

    def generic_visit(self, node: ast.AST) -> str:
        return self._node(type(node).__name__, dict(ast.iter_fields(node)))

    def visit_Name(self, name: ast.Name) -> str:
        return self._chain(name.id, [])

    def visit_Attribute(self, attribute: ast.Attribute) -> str:
        read = [attribute.attr]
        inner = attribute.value
        while isinstance(inner, ast.Attribute):
            read.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            return self._chain(inner.id, read)
        return ".".join([self.of(inner), *read])

    def _chain(self, name: str, read: Sequence[str]) -> str:
        self.chains.add((name, tuple(read)))
        behind = self.names.get(name)
        return ".".join([f"import:{behind}" if behind else name, *read])

    def visit_Constant(self, constant: ast.Constant) -> str:
        if isinstance(constant.value, str):
            self.words.add(constant.value)
            return json.dumps(constant.value)
        return ascii(constant.value)

    def visit_JoinedStr(self, text: ast.JoinedStr) -> str:
        return f"JoinedStr({self.of(_joined(text.values))})"

    def visit_AnnAssign(self, assignment: ast.AnnAssign) -> str:
        parts = {"targets": [assignment.target], "value": assignment.value}
        return self._node("Assign", parts)

    def visit_Global(self, statement: ast.Global) -> str:
        self.chains.update((name, ()) for name in statement.names)
        return self.generic_visit(statement)

    def visit_AsyncFunctionDef(self, function: ast.AsyncFunctionDef) -> str:
        return self.of_function(function)

    def visit_FunctionDef(self, function: ast.FunctionDef) -> str:
        return self.of_function(function)

    def of_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        is_read = not all(map(is_plain, function.decorator_list))
        parts = dict(ast.iter_fields(function))
        arguments = parts.pop("args")
        if not _keeps(function.returns, is_read):
            parts["returns"] = None
        every = [one for one in ast.walk(arguments) if isinstance(one, ast.arg)]
        annotations = "".join(
            f"{one.arg}:{self.of(one.annotation)}"
            for one in every
            if _keeps(one.annotation, is_read)
        )
        head = self._node("arguments", _parameters(arguments))
        return f"{self._node(type(function).__name__, parts)}{head}{annotations}"

    def visit_ClassDef(self, definition: ast.ClassDef) -> str:
        parts = dict(ast.iter_fields(definition))
        is_read = not all(map(is_plain, definition.decorator_list))
        body = self.block(parts.pop("body"), in_class=True, is_read=is_read)
        return f"{self._node('ClassDef', parts)}{body}"

    def of_field(self, field: ast.AnnAssign, is_read: bool) -> str:
        """That a class has an annotation of this name makes a field of it."""
        parts: dict[str, Any] = {"target": field.target, "value": field.value}
        if _keeps(field.annotation, is_read):
            parts["annotation"] = field.annotation
        return self._node("Field", parts)

    def _node(self, name: str, fields: Mapping[str, Any]) -> str:
        told = (
            f"{key}={self.of(one)}"
            for key, one in fields.items()
            if key not in UNREAD and one is not None and one != []
        )
        return f"{name}({','.join(told)})"

    def _is_moved(self, statement: ast.stmt) -> bool:
        """An import whose names stand for what is behind them, wherever it is done."""
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            return False
        bound = {name for name, _ in bound_by(statement, "")}
        return bound <= self.names.keys() and not bound & self.unused


def _keeps(annotation: ast.expr | None, is_read: bool) -> bool:
    """Whether an annotation is more than words to the reader."""
    if annotation is None:
        return False
    named = (getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(annotation))
    written = annotation.value if isinstance(annotation, ast.Constant) else ""
    return is_read or any(name in READ_ANNOTATIONS for name in [*named, written])


def _parameters(arguments: ast.arguments) -> dict[str, Any]:
    """Names and defaults alone."""
    return {
        key: value.arg
        if isinstance(value, ast.arg)
        else [one.arg if isinstance(one, ast.arg) else one for one in value or ()]
        for key, value in ast.iter_fields(arguments)
    }


def _joined(values: Sequence[ast.expr]) -> list[ast.expr]:
    """Parts of an f-string with neighbours of text as one: versions of Python cut it otherwise."""
    parts: list[ast.expr] = []
    for one in values:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            before = parts[-1] if parts else None
            if isinstance(before, ast.Constant) and isinstance(before.value, str):
                parts[-1] = ast.Constant(value=before.value + one.value)
            elif one.value:
                parts.append(one)
        else:
            parts.append(one)
    return parts
