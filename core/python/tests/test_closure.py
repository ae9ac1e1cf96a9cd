"""What a script reaches over modules, and which changes its hashes see."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from gpulift_closure import Closure

SCRIPT = """
from work import training
from work.shapes import WIDTH, draw

TECHNIQUE = {"arms": ["a", "b"]}
ROWS = 4

def helper(rows=ROWS):
    return draw(rows, WIDTH)

def make(arm, point, seed, gpu):
    return training.step(helper())

def unused():
    return 1
"""
TRAINING = """
import torch
from work.shapes import draw

RATE = 0.1

class Model:
    def forward(self, x):
        return x * RATE

def loss(x):
    return torch.mean(x)

def step(x):
    return loss(Model().forward(x))

def another(x):
    return x
"""
SHAPES = """
WIDTH = 8
HEIGHT = 9

def draw(rows, width):
    return rows * width
"""
FILES = {"work/training.py": TRAINING, "work/shapes.py": SHAPES}


def sums(script: str = SCRIPT, files: Mapping[str, str] = FILES) -> dict[str, str]:
    def read(path: str) -> bytes | None:
        return files[path].encode() if path in files else None

    return Closure("own.py", script.encode(), read).sums()


def changed(files: Mapping[str, str], script: str = SCRIPT) -> set[str]:
    """Names of the files whose hashes are not those of SCRIPT with FILES."""
    before, after = sums(), sums(script, {**FILES, **files})
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def test_it_is_the_script_and_the_modules_that_it_reaches() -> None:
    assert sums().keys() == {"own.py", "work/training.py", "work/shapes.py"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "import torch\nfrom work.shapes import draw",
            "from work.shapes import draw\nimport torch",
        ),
        ("def loss", "# a comment\n\n\ndef loss"),
        ("def loss(x):", 'def loss(x):\n    """Of a batch."""'),
        ("def loss(x):", "def loss(x: torch.Tensor) -> torch.Tensor:"),
        ("import torch\n", ""),  # moved into the function that uses it
        ("return x * RATE", "return (\n            x * RATE\n        )"),
        ("def another(x):\n    return x", "def another(x):\n    return -x"),  # not reached
        ("def another(x):\n    return x\n", ""),
        ("RATE = 0.1\n", "RATE: float = 0.1\nFURTHER = 3\n"),
    ],
)
def test_what_no_arm_does_changes_nothing(old: str, new: str) -> None:
    text = replaced(TRAINING, old, new)
    if old == "import torch\n":
        text = replaced(text, "def loss(x):", "def loss(x):\n    import torch")
    assert changed({"work/training.py": text}) == set()


def test_moved_definitions_are_the_same() -> None:
    loss = "def loss(x):\n    return torch.mean(x)\n\n"
    moved = f"{replaced(TRAINING, loss, '')}\n{loss}"
    assert changed({"work/training.py": moved}) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 0.1", "RATE = 0.2"),
        ("torch.mean", "torch.sum"),  # a called helper's body
        ("x * RATE", "x / RATE"),  # a method of a class that is used
        ("import torch\n", "import other as torch\n"),
        ("def step(x):", "def step(x, times=2):"),
        ("def another", "torch.set_default_dtype(3)\n\ndef another"),  # done by importing
        ("def another", "@registered\ndef another"),
        ("import torch\n", "import torch\nimport kernels_of_others\n"),  # for what it does
    ],
)
def test_what_an_arm_does_changes_the_hash_of_its_file(old: str, new: str) -> None:
    assert changed({"work/training.py": replaced(TRAINING, old, new)}) == {"work/training.py"}


@pytest.mark.parametrize(
    ("old", "new", "is_seen"),
    [
        ('["a", "b"]', '["a", "b", "c"]', False),  # of the manifest
        ("return 1", "return 2", False),
        ("from work import training\n", "import work.training as training\n", False),
        ("ROWS = 4", "ROWS = 5", True),
        ("rows=ROWS", "rows=3", True),
        ("step(helper())", "step(-helper())", True),
    ],
)
def test_of_a_script_counts_what_make_reaches(old: str, new: str, is_seen: bool) -> None:
    assert changed({}, replaced(SCRIPT, old, new)) == ({"own.py"} if is_seen else set())


def test_another_constant_of_a_module_counts_where_it_is_used() -> None:
    assert changed({"work/shapes.py": replaced(SHAPES, "HEIGHT = 9", "HEIGHT = 10")}) == set()
    wider = replaced(SHAPES, "WIDTH = 8", "WIDTH = 9")
    assert changed({"work/shapes.py": wider}) == {"work/shapes.py"}


@pytest.mark.parametrize(
    "make",
    [
        "from work import training\ndef make(name): return getattr(training, name)",
        "from work.training import *\ndef make(name): return another(name)",
        'def make(): return load("work.training")',
        "import importlib\ndef make(): return importlib.import_module('work.training')",
        "def make():\n    from work import training\n    return vars(training)",
        "from work import training\ndef make(): return training.not_known",
        "from work.names import another\ndef make(): return another()",  # which passes it on
    ],
)
def test_where_a_name_is_not_told_all_of_it_is_taken(make: str) -> None:
    other = replaced(TRAINING, "def another(x):\n    return x", "def another(x):\n    return -x")
    files = {**FILES, "work/names.py": "from work.training import another\n"}
    before = sums(make, files)["work/training.py"]
    assert sums(make, {**files, "work/training.py": other})["work/training.py"] != before


def test_what_a_module_does_as_a_program_counts_where_it_is_started() -> None:
    program = "def serve(): return 1\n\nif __name__ == '__main__':\n    serve()\n"
    files = {"server.py": program}
    later = {"server.py": program.replace("return 1", "return 2")}
    started = "import server\ndef make(): return [server.__file__]"
    assert sums(started, files) != sums(started, later)
    imported = "import server\ndef make(): return 0"
    assert sums(imported, files) == sums(imported, later)


def test_what_may_or_may_not_be_there_is_part_of_the_meaning() -> None:
    text = "def make():\n  try:\n    import {} as fast\n  except ImportError:\n    return 0"
    assert sums(text.format("liger")) != sums(text.format("apex"))


@pytest.mark.parametrize(
    "make",
    [
        "import {} as fast\nfast = wrapped(fast)\ndef make(): return fast.step()",
        "try:\n  import {} as fast\nexcept ImportError:\n  fast = None\ndef make(): return fast",
        "import {} as fast\ndef make(arm):\n  if arm:\n    import other as fast\n  return fast",
        "if TYPE_CHECKING:\n  x = 1\nelse:\n  x = '{}'\ndef make(): return 1",
        "if __name__ != '__main__':\n  prepare('{}')\ndef make(): return 1",
    ],
)
def test_what_may_be_behind_a_name_counts(make: str) -> None:
    assert sums(make.format("liger")) != sums(make.format("apex"))


def test_what_types_alone_need_is_no_work() -> None:
    make = "if TYPE_CHECKING:\n    from {} import Model\ndef make(): return 1"
    assert sums(make.format("liger")) == sums(make.format("apex"))


def test_the_engine_is_no_part_of_it() -> None:
    make = "from gpulift_worker import Arm\ndef make(): return Arm()"
    assert sums(make, {"gpulift_worker.py": "class Arm: pass"}).keys() == {"own.py"}


def test_a_package_does_what_its_first_file_says() -> None:
    files = {**FILES, "work/__init__.py": "import os\nos.environ['THREADS'] = '4'\n"}
    assert "work/__init__.py" in sums(SCRIPT, files)
    near = "from . import shapes\n\ndef step(x):\n    return shapes.draw(x, x)\n"
    assert "work/shapes.py" in sums(
        "from work import near\ndef make(): return near.step(1)", {**FILES, "work/near.py": near}
    )


def test_modules_may_import_each_other() -> None:
    files = {
        "a.py": "import b\ndef f(): return b.g()\n",
        "b.py": "import a\ndef g(): return 1\ndef h(): return a.f()\n",
    }
    assert sums("import a\ndef make(): return a.f()", files).keys() == {"own.py", "a.py", "b.py"}
    assert sums("import a\ndef make(): return vars(a)", files).keys() == {"own.py", "a.py", "b.py"}


def test_a_module_that_is_no_python_is_named() -> None:
    with pytest.raises(SyntaxError) as caught:
        sums("import broken\ndef make(): return 1", {"broken.py": "def"})
    assert caught.value.filename == "broken.py"


def test_of_the_declaration_only_what_arms_are_started_with_counts() -> None:
    def started(**said: object) -> dict[str, str]:
        return sums(SCRIPT.replace('{"arms": ["a", "b"]}', repr({"arms": ["a"], **said})))

    assert started(question="Why?") == started(question="What?") == sums()
    few, many = (started(environment={"a": {"NCCL_MAX_CTAS": n}}) for n in ("8", "32"))
    assert len({few["own.py"], many["own.py"], sums()["own.py"]}) == 3
    assert started(preload={"a": "libx.so"}) != started(preload={"a": "liby.so"})
