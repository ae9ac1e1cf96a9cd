"""What of a piece of Python is its meaning, and what is not."""

from __future__ import annotations

import ast

import gpulift_syntax as syntax
import pytest

TEXT = """
class Size:
    width: int = 8

    def area(self, height: int = 2) -> int:
        return self.width * height

def step(size: Size, *rest: float, scale: float = 1.5) -> str:
    total = size.area() * scale
    return f"{total:.3f} of {rest}"
"""


def meaning(text: str, names: syntax.Names | None = None) -> str:
    return syntax.meaning_of(ast.parse(text).body, names or {}).text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    total =", "    # of all\n    total ="),
        ("    total =", "\n\n    total ="),
        ("    total =", '    """What it does."""\n    total ='),
        ("    total =", "    total: float ="),
        ("    total =", "    pass\n    total ="),
        ("size.area() * scale", "(size.area()\n        * scale)"),
        ("size: Size, *rest: float", 'size: "Size", *rest'),
        (" -> str", ""),
        ("width: int", "width: float"),
        ("1.5", "15e-1"),
        ('f"{total:.3f} of {rest}"', 'f"{total:.3f}" " of " f"{rest}"'),
    ],
)
def test_what_is_no_meaning_changes_nothing(old: str, new: str) -> None:
    assert old in TEXT
    assert meaning(TEXT.replace(old, new)) == meaning(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("= 8", "= 9"),
        ("width: int = 8", "width = 8"),  # a field no more
        ("height: int = 2", "height: int = 3"),
        ("1.5", "1.25"),
        ("scale: float = 1.5", "scale: float"),
        ("*rest: float, scale", "rest: float, scale"),
        ("* scale", "+ scale"),
        (" of ", " in "),
        (":.3f", ":.4f"),
        ("size.area()", "size.area"),
        ("    return f", "    yield f"),
        ("class Size:", "class Size(Base):"),
        ("def step", "@compiled\ndef step"),
    ],
)
def test_what_is_meaning_changes_it(old: str, new: str) -> None:
    assert old in TEXT
    assert meaning(TEXT.replace(old, new)) != meaning(TEXT)


@pytest.mark.parametrize(
    "text",
    [
        "@kernel\ndef f(a: {}) -> int: return a",  # who knows what a decorator reads
        "@register\nclass A:\n    a: {}",
        "@dataclass\nclass A:\n    a: ClassVar[{}]",
        "def f(a: tl.constexpr[{}]): return a",
        'def f(a: "constexpr", b: constexpr[{}]): return a',
    ],
)
def test_an_annotation_that_is_read_is_meaning(text: str) -> None:
    assert meaning(text.format("int")) != meaning(text.format("float"))


def test_a_name_is_what_an_import_put_behind_it() -> None:
    short = meaning("import numpy as np\nx = np.zeros(3)", {"np": "numpy"})
    assert meaning("import numpy\nx = numpy.zeros(3)", {"numpy": "numpy"}) == short
    assert meaning("from numpy import zeros\nx = zeros(3)", {"zeros": "numpy.zeros"}) == short
    assert meaning("x = np.zeros(3)", {"np": "jax.numpy"}) != short


def test_an_import_for_what_it_does_stays() -> None:
    statements = ast.parse("import fast_kernels\nrun()").body
    names = {"fast_kernels": "fast_kernels"}
    kept = syntax.meaning_of(statements, names, ["fast_kernels"]).text
    assert kept != syntax.meaning_of(statements, names).text == meaning("run()")


def test_a_piece_refers_to_names_and_what_is_read_off_them() -> None:
    found = syntax.meaning_of(ast.parse('import a\ny: Shape = a.b.c(x)["here"]').body, {"a": "a"})
    assert found.chains == {("a", ("b", "c")), ("x", ()), ("y", ())}
    assert found.words == {"here"}


def test_its_form_is_written_down() -> None:
    """A hash of another form would make all records ones of another text."""
    assert meaning("def f(a, /, b=1, *, c=None, **d):\n    if a < b: return {**d, 'e': -c}") == (
        '[FunctionDef(name="f",body=[If(test=Compare(left=a,ops=[Lt()],comparators=[b]),body='
        '[Return(value=Dict(keys=[null,"e"],values=[d,UnaryOp(op=USub(),operand=c)]))])])'
        'arguments(posonlyargs=["a"],args=["b"],kwonlyargs=["c"],kw_defaults=[None],kwarg="d",'
        "defaults=[1])]"
    )
