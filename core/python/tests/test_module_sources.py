"""What a module is made of: the linker's map and ninja's dependencies, here of fakes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import module_sources as sources
import pytest

MAP = """Archive member included to satisfy reference by file (symbol)

kernels/libkernels.a(norm.cu.o)
                              own.cpp.o (norm_forward)
/usr/lib/libc.a(printf.o)     own.cpp.o (printf)
"""
FAKE_NINJA = """#!/bin/sh
# -C BUILD -n -t TOOL WORDS...
[ "$3" = -n ] || { echo "would write its log"; exit 2; }
case $5 in
  query) printf 'kernels/libkernels.a:\\n  input: LINKER\\n    norm.cu.o\\n    other.cu.o\\n' ;;
  deps) shift 5; for object; do [ -f "deps/$object" ] && cat "deps/$object"; done; true ;;
esac
"""


@pytest.fixture(name="root")
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """root: of a technique that a kernel is in, whose header another header includes."""
    files = {
        "benches/a/own.cpp": "own",
        "benches/a/own.hpp": "beside",
        "benches/a/other.cpp": "not in it",
        "kernels/norm.cu": "norm",
        "kernels/norm.hpp": "declared",
        "kernels/other.cu": "not in it",
        "core/harness/technique.hpp": "the engine",
        "build/own.map": MAP,
        "build/ninja": FAKE_NINJA,
        "build/deps/own.cpp.o": "own.cpp.o: #deps 3, deps mtime 1 (VALID)\n"
        f"    {tmp_path}/benches/a/own.cpp\n    ../benches/a/own.hpp\n"
        "    ../core/harness/technique.hpp\n    /usr/include/stdio.h\n",
        "build/deps/norm.cu.o": "norm.cu.o: #deps 2, deps mtime 1 (VALID)\n"
        "    ../kernels/norm.cu\n    ../kernels/norm.hpp\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "build" / "kernels").mkdir()
    (tmp_path / "build" / "ninja").chmod(0o755)
    monkeypatch.chdir(tmp_path / "build")
    return tmp_path


def told(root: Path) -> int:
    build = root / "build"
    words = ["--build", str(build), "--ninja", str(build / "ninja"), "--root", str(root)]
    words += ["--map", str(build / "own.map"), "--objects", str(build / "own.cpp.o")]
    code: int = sources.main([*words, "--files", str(root / "benches" / "a" / "own.cpp")])
    return code


def test_it_is_the_technique_what_it_includes_and_the_kernels_that_were_linked(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(root) == 0
    lines = capsys.readouterr().out.splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert [*sums] == ["kernels/norm.cu", "kernels/norm.hpp", "own.cpp", "own.hpp"]
    assert sums["kernels/norm.cu"] == hashlib.sha256(b"norm").hexdigest()


def test_what_a_technique_declares_is_no_work() -> None:
    declared = b"const gpulift::Technique gpulift::technique{\n    .run = run,\n};\n"
    assert sources.without_declaration(b"run;\n" + declared) == b"run;\n\n"
    assert sources.without_declaration(b"struct Other {\n};\n") == b"struct Other {\n};\n"


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("own.map", "own.cpp: no map of the linker"),
        ("deps/own.cpp.o", "own.cpp: ninja has no dependencies of own.cpp.o"),
        ("deps/norm.cu.o", "own.cpp: ninja has no dependencies of norm.cu.o"),
    ],
)
def test_half_of_the_files_is_no_fingerprint(
    root: Path, capsys: pytest.CaptureFixture[str], gone: str, said: str
) -> None:
    (root / "build" / gone).unlink()
    assert told(root) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(said)


def test_a_member_that_ninja_does_not_know_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "build" / "own.map").write_text("kernels/libkernels.a(foreign.o):(.text)\n")
    assert told(root) == 1
    assert "libkernels.a has foreign.o" in capsys.readouterr().err
