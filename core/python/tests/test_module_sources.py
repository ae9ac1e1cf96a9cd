"""What a module is made of: the files that includes reach, and of each its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import module_sources as sources
import pytest

OWN = """#include <vector>

#include "core/harness/technique.hpp"
#include "own.hpp"
#include "kernels/norm.hpp"

namespace {
constexpr int kTile = 128;  // columns
const char* kName = "a // b";
void run(int rows = 4) { norm(rows, kTile, 1'000); }
}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "Why?",
};
"""
KERNEL = """#include "kernels/norm.hpp"
#include "rows.cuh"
#define ROWS 4
__global__ void kernel(float* x) {
  x[threadIdx.x] *= 2.0F;
}
"""
FILES = {
    "benches/a/own.cpp": OWN,
    "benches/a/own.hpp": "void beside();\n",
    "benches/a/other.cpp": "not in it",
    "kernels/norm.hpp": "void norm(int, int, int);\n",
    "kernels/norm.cu": KERNEL,
    "kernels/norm_backward.cu": '#include "kernels/norm.hpp"\nvoid backward() {}\n',
    "kernels/norm_test.cpp": '#include "kernels/norm.hpp"\n',
    "kernels/rows.cuh": "struct Rows {};\n",
    "kernels/other.hpp": "",
    "kernels/other.cu": '#include "kernels/norm.hpp"\n',
    "core/harness/technique.hpp": '#include "kernels/other.hpp"\n',
}
ALL = ["kernels/norm.cu", "kernels/norm.hpp", "kernels/norm_backward.cu", "kernels/rows.cuh"]


def sums(files: Mapping[str, str] = FILES) -> dict[str, str]:
    def read(path: str) -> bytes | None:
        return files[path].encode() if path in files else None

    return sources.sources_in(sources.Tree(files, read), "benches/a/own.cpp")


def changed(path: str, text: str) -> set[str]:
    """Names of the files whose hashes another text of one changes."""
    before, after = sums(), sums({**FILES, path: text})
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_it_is_the_technique_what_it_includes_and_the_implementations_of_that() -> None:
    """Those that have no header of their name are of the headers that they include."""
    assert sorted(sums()) == [*ALL, "own.cpp", "own.hpp"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// columns", "// rows and columns"),
        ("constexpr", "/* a\ncomment */ constexpr"),
        ("{ norm(rows,", "{\n  norm(\n      rows, "),
        (
            '#include "own.hpp"\n#include "kernels/norm.hpp"\n',
            '#include "kernels/norm.hpp"\n#include "own.hpp"\n',
        ),
        ("#include <vector>\n", "#pragma once\n#include <vector>\n#include <map>\n"),
        ("namespace {\n", "\n\nnamespace {\r\n"),
        ("1'000", "1000"),
        ('"a // b"', '"a " "// b"'),
        ("Why?", "Why not?"),
    ],
)
def test_what_no_compiler_minds_changes_nothing(old: str, new: str) -> None:
    assert old in OWN
    assert changed("benches/a/own.cpp", OWN.replace(old, new)) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kTile = 128", "kTile = 64"),
        ("int rows = 4", "int rows = 8"),
        ('"a // b"', '"a /  b"'),
        ("constexpr int", "constexprint"),
        ("norm(rows, kTile", "norm(kTile, rows"),
    ],
)
def test_what_a_compiler_reads_changes_the_hash_of_its_file(old: str, new: str) -> None:
    assert old in OWN
    assert "own.cpp" in changed("benches/a/own.cpp", OWN.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "is_seen"),
    [
        ("2.0F", "4.0F", True),
        ("#define ROWS 4\n", "#define ROWS 4 ", True),  # what follows is of the macro
        ("#define ROWS 4\n", "#define ROWS \\\n  4\n", False),
        ("#define ROWS 4\n", "#define ROWS 4  // rows\n", False),
        ('"rows.cuh"', '"kernels/rows.cuh"', False),  # the same file
        ("{\n  x", "{\n\n  // doubled\n  x", False),
    ],
)
def test_of_a_kernel_its_text_counts(old: str, new: str, is_seen: bool) -> None:
    assert old in KERNEL
    seen = changed("kernels/norm.cu", KERNEL.replace(old, new))
    assert seen == ({"kernels/norm.cu"} if is_seen else set())


def test_an_include_that_moves_to_another_file_is_no_other_text() -> None:
    kernel, header = KERNEL.replace('#include "rows.cuh"\n', ""), FILES["kernels/norm.hpp"]
    moved = {"kernels/norm.cu": kernel, "kernels/norm.hpp": f'#include "rows.cuh"\n{header}'}
    assert sums({**FILES, **moved}) == sums()
    gone = sums({**FILES, "kernels/norm.cu": kernel})
    assert gone.items() == sums().items() - {("kernels/rows.cuh", sums()["kernels/rows.cuh"])}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a + +b", "a ++ b"),
        ("x > > y", "x >> y"),
        ('R"(a  b)"', 'R"(a b)"'),
        ('R"x(a)" )x"', 'R"x(a)")x"'),
        ('"\\x1" "2"', '"\\x12"'),
        ("'\\''", "'\"'"),
        ("1e+5", "1e +5"),
        ("#if A\nB\n#endif", "#if A B\n#endif"),
    ],
)
def test_other_tokens_are_another_text(one: str, other: str) -> None:
    assert sources.text_of(one.encode()) != sources.text_of(other.encode())


def test_tokens_are_written_down() -> None:
    """A hash of another form would make all records ones of another text."""
    text = sources.text_of(
        b'#include "a.hpp"\n#if A >= 2 // c\nx<<<g, 4>>>(1\'0.5e-3f, "q\\"" R"(\n)");\n'
    )
    assert text.includes == {"a.hpp"}
    assert text.tokens == (
        *("#", "if", "A", ">=", "2", "#end", "x", "<<<", "g", ",", "4", ">>>", "(", "10.5e-3f"),
        *(",", '"q\\""', 'R"(\n)"', ")", ";"),
    )


def test_what_a_technique_declares_is_no_work() -> None:
    declared = b"const gpulift::Technique gpulift::technique{\n    .run = run,\n};\n"
    assert sources.without_declaration(b"run;\n" + declared) == b"run;\n\n"
    assert sources.without_declaration(b"struct Other {\n};\n") == b"struct Other {\n};\n"


def told(root: Path, *scripts: str) -> int:
    files = [str(root / "benches" / "a" / name) for name in ("own.cpp", *scripts)]
    code: int = sources.main(["--root", str(root), "--files", *files])
    return code


@pytest.fixture(name="root")
def repository(tmp_path: Path) -> Path:
    """root: of FILES."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_build_is_told_it_with_the_script_of_python_arms(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "benches" / "a" / "own.py").write_text("def make(): return 1\n")
    assert told(root, "own.py") == 0
    lines = capsys.readouterr().out.splitlines()
    found = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert found.keys() == sums().keys() | {"own.py"}
    assert {name: found[name] for name in sums()} == sums()


def test_the_build_is_told_when_to_ask_again(root: Path) -> None:
    depfile = root / "own.d"
    words = ["--root", str(root), "--files", str(root / "benches" / "a" / "own.cpp")]
    assert sources.main([*words, "--stamp", "/build/a b.stamp", "--depfile", str(depfile)]) == 0
    target, _, files = depfile.read_text().partition(": ")
    assert target == "/build/a\\ b.stamp"
    own = (f"{root}/benches/a/{name}" for name in ("own.cpp", "own.hpp"))
    assert files.split() == [*own, *(f"{root}/{name}" for name in ALL)]


def test_a_technique_outside_of_the_repository_is_made_of_it_too(
    root: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path_factory.mktemp("mine")
    for name in ("own.cpp", "own.hpp"):
        (root / "benches" / "a" / name).rename(elsewhere / name)
    assert sources.main(["--root", str(root), "--files", str(elsewhere / "own.cpp")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition("  ")[2]: line[:64] for line in lines} == sums()


def test_a_script_that_is_no_python_ends_it_in_one_line(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "benches" / "a" / "own.py").write_text("def make(:\n")
    assert told(root, "own.py") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("own.cpp: own.py: line 1: ")


CHECKOUT = Path(__file__).parents[3]


def test_every_file_that_is_included_in_quotes_is_found() -> None:
    """One that only a compiler's options lead to would be in no fingerprint."""
    tree = sources.checkout(CHECKOUT)
    files = (file for above in ("benches", *sources.WORK) for file in (CHECKOUT / above).rglob("*"))
    lost = {
        (str(file.relative_to(CHECKOUT)), name)
        for file in files
        if file.suffix in (*sources.HEADERS, *sources.COMPILED)
        for name in sources.text_of(file.read_bytes()).includes
        if tree.find(name, str(file.relative_to(CHECKOUT))) is None
    }
    assert lost == set()


def test_includes_reach_every_file_that_kernels_and_workloads_are_linked_of() -> None:
    """One that no header leads to would be in no fingerprint."""
    tree = sources.checkout(CHECKOUT)
    headers = (file for above in sources.WORK for file in (CHECKOUT / above).rglob("*.*"))
    reached = {
        found
        for file in headers
        if file.suffix in sources.HEADERS
        for found in tree.implementations(str(file.relative_to(CHECKOUT)))
    }
    every = {
        str(file.relative_to(CHECKOUT))
        for above in sources.WORK
        for file in (CHECKOUT / above).rglob("*.*")
        if file.suffix in sources.COMPILED and file.stem != "precompiled"
    }
    programs = {one for one in every if "int main(" in (CHECKOUT / one).read_text()}
    tests = {one for one in every if one.endswith(("_test.cpp", "_test.cu")) or "/testing/" in one}
    assert every - programs - tests - reached == set()
