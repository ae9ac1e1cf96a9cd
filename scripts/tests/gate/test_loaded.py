"""Sides that run what is not their own, and sides that do."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpulift.gate import loaded
from gpulift.gate.jobs import JobSide
from gpulift.gate.loaded import Loaded
from gpulift.gate.processes import run_to_end
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError

CHECKOUT, BASE, HEAD = "checkout", "cache/p/one/source", "cache/p/two/source"
OURS = "import own"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two commits and the user's checkout: `own.py` differs, `same.py` does not; both have built
    `prog`, and the head alone has a new benchmark."""
    for root in (BASE, HEAD, CHECKOUT):
        for name, text in (("pkg/own.py", root), ("pkg/same.py", ""), ("prog", root)):
            write(tmp_path / root / name, text)
    for root in (HEAD, CHECKOUT):
        write(tmp_path / root / "new.py", "")
    return tmp_path


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


def side(folder: Path, root: str, python: str = "") -> JobSide:
    source = folder / root
    return JobSide(
        root, source, {"PATH": os.environ["PATH"]}, source, Path(python) if python else None
    )


def loads(folder: Path, *names: str, named: Sequence[str] = (), prefix: str = "") -> Loaded:
    files = frozenset(folder / name for name in names)
    pythons = frozenset({("/usr/bin/python3", prefix)}) if prefix else frozenset()
    return Loaded(files, pythons, frozenset(folder / name for name in named))


def require_own(
    folder: Path, base: Loaded, head: Loaded, pythons: Sequence[str] = ("", "")
) -> None:
    base_side, head_side = side(folder, BASE, pythons[0]), side(folder, HEAD, pythons[1])
    loaded.require_own(base_side, head_side, (base, head), folder / CHECKOUT)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (f"{CHECKOUT}/pkg/own.py", f"{CHECKOUT}/pkg/own.py", "the base runs .* in your checkout"),
        (f"{HEAD}/pkg/own.py", f"{HEAD}/pkg/own.py", "the base runs .* which is in the head: let"),
        (f"{BASE}/pkg/own.py", f"{BASE}/pkg/own.py", "the head runs .* which is in the base: let"),
        (f"{BASE}/prog", f"{CHECKOUT}/prog", "the head runs .* in your checkout"),
        (
            f"{CHECKOUT}/pkg/ext.so",
            f"{HEAD}/pkg/ext.so",
            "the base runs .*ext.so, .* your checkout",
        ),
        ("lib/site-packages/pkg/own.py",) * 2 + ("both sides run .* a copy of pkg/own.py",),
        ("usr/bin/prog",) * 2 + ("both sides run .*, which is a copy of prog",),
        ("lib/site-packages/pkg/ext.so",) * 2 + ("which is installed from .*/checkout",),
        (f"{CHECKOUT}/.venv/lib/site-packages/pkg/own.py",) * 2 + ("a copy of pkg/own.py",),
    ],
)
def test_sides_that_are_one_program_are_not_comparable(
    folder: Path, base: str, head: str, said: str
) -> None:
    for name in {base, head}:
        text = (folder / HEAD / "prog").read_text() if name == "usr/bin/prog" else "x"
        if not (folder / name).exists():
            write(folder / name, text)
    if said.startswith("which is installed"):
        note = folder / "lib/site-packages/pkg-1.dist-info"
        write(note / "direct_url.json", json.dumps({"url": f"file://{folder / CHECKOUT}"}))
        write(note / "RECORD", "pkg/ext.so,,\n")
    with pytest.raises(GpuliftError, match=f"not comparable: {said}|{said}") as refused:
        require_own(folder, loads(folder, base), loads(folder, head))
    assert refused.value.exit_code == NOT_COMPARABLE


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (("usr/lib/libc.so", "lib/site-packages/numpy/core.py", "usr/bin/prog"), ()),
        ((f"{CHECKOUT}/pkg/same.py",), ()),
        ((f"{CHECKOUT}/new.py",), (f"{CHECKOUT}/new.py",)),
        ((f"{CHECKOUT}/env/bin/python",), ()),
        ((f"{CHECKOUT}/.venv/lib/site-packages/other/own.py",), ()),
    ],
)
def test_what_both_sides_may_share(
    folder: Path, files: Sequence[str], named: Sequence[str]
) -> None:
    write(folder / CHECKOUT / "env" / "pyvenv.cfg", "")
    for name in files:
        if not (folder / name).exists():
            write(folder / name, "other")
    base = loads(folder, f"{BASE}/pkg/own.py", *files, named=named)
    head = loads(folder, f"{HEAD}/pkg/own.py", *files, named=named)
    require_own(folder, base, head)


def test_a_commit_may_run_what_is_its_own_on_both_sides(folder: Path) -> None:
    one = loads(folder, f"{BASE}/pkg/own.py")
    both = side(folder, BASE)
    loaded.require_own(both, both, (one, one), folder / CHECKOUT)


def test_two_pythons_of_which_one_runs_are_not_comparable(folder: Path) -> None:
    one, other = (loads(folder, prefix=prefix) for prefix in ("/a", "/b"))
    pythons = ("/a/bin/python", "/b/bin/python")
    require_own(folder, one, other, pythons)
    require_own(folder, loads(folder), loads(folder), pythons)
    require_own(folder, one, one, (pythons[0],) * 2)
    with pytest.raises(GpuliftError, match="both sides run the Python of /a: write `python` in"):
        require_own(folder, one, one, pythons)


@pytest.mark.parametrize(
    ("head", "said"), [("\x7fELF 1", "prog"), ("\x7fELF 2", ""), ("text", ""), ("", "")]
)
def test_binaries_that_are_the_same_on_both_sides_are_said(
    folder: Path, head: str, said: str
) -> None:
    write(folder / BASE / "prog", "text" if head == "text" else "\x7fELF 1")
    write(folder / HEAD / "prog", head)
    both = [loads(folder, f"{root}/prog", f"{root}/pkg/own.py") for root in (BASE, HEAD)]
    sides = side(folder, BASE), side(folder, HEAD)
    assert loaded.same_build(*sides, both) == said
    assert loaded.same_build(sides[0], sides[0], both) == ""


def test_a_run_tells_its_modules_its_libraries_and_its_programs(tmp_path: Path) -> None:
    write(
        tmp_path / "own.py",
        "import sys, types\n"
        "class Lazy:\n    def __getattr__(self, name): raise OSError\n"
        "odd, far = types.ModuleType('odd'), types.ModuleType('far')\n"
        "odd.__file__, far.__file__ = b'odd', '/' + 300 * 'far'\n"
        "sys.modules |= {'lazy': Lazy(), 'odd': odd, 'far': far}\n",
    )
    write(tmp_path / "hook" / "sitecustomize.py", "print('the environment has its own')")
    write(
        tmp_path / "run.sh", f"#!/bin/sh\n{sys.executable} -c 'import own, _ctypes' && cat run.sh\n"
    )
    (tmp_path / "run.sh").chmod(0o755)
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{tmp_path / 'hook'}"}
    one = JobSide("one", tmp_path, own)
    told = loaded.watched(one, tmp_path / "told")
    done = run_to_end(["./run.sh"], 60.0, tmp_path, told.environment)
    assert done.printed.startswith(b"the environment has its own\n#!/bin/sh")
    elsewhere = write(tmp_path / "elsewhere" / "build" / "tool", "").parents[1]
    write(tmp_path / "told" / "python.1", "")  # of one that was killed
    write(tmp_path / "told" / "libraries.1", "     1:\tinitialize program: build/tool\n")
    found = loaded.read(one, ["./run.sh", "/etc/x"], tmp_path / "told", elsewhere)
    assert elsewhere / "build" / "tool" in found.files
    assert {tmp_path / "own.py", tmp_path / "run.sh"} <= found.files
    programs = {Path(os.path.realpath(shutil.which(name) or "")) for name in ("sh", "cat")}
    assert programs <= found.files
    assert any(file.name.startswith("_ctypes") for file in found.files)
    assert found.pythons == {(os.path.realpath(sys.executable), sys.prefix)}
    assert found.named == {Path("/etc/x")}
