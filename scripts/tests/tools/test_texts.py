"""results/texts.json: of which texts earlier records are, by git."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.today import TEXTS, Today, digest_of, read_today
from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import HASHES_MEANING, Record
from gpulift.records.parse import read_record
from tests import sample
from tests.conftest import CHECKOUT
from tests.tools.test_showcase import needs_git
from tools import texts

pytestmark = pytest.mark.world

# What techniques were when this was written: d028c278, whatever they are today.
FROZEN = "d028c278"
SAME = [  # their files differ in declarations, comments, docstrings, or what no arm reaches
    ("30f4d28bf7", "ceiling/launch"),
    ("52d4f4a9a3", "ceiling/host_memory"),
    ("52d4f4a9a3", "allocator/host_malloc"),
    ("cdc3569b21", "optimizer/fused_adamw"),
    ("cdc3569b21", "cache/persisting_l2"),
    ("cdc3569b21", "launch/priorities"),
    ("8bb03f9372", "host_sync/readback"),
    ("8bb03f9372", "launch/programmatic"),
    ("8bb03f9372", "transfer/batched_copies"),
    ("3655ccbb44", "distributed/overlap"),
    ("f487cf6ad6", "input/tokens"),
    ("c0dfd93ed5", "input/packed_files"),
]
OTHER = [
    ("30f4d28bf7", "allocator/host_malloc"),
    ("b9636d6ee7", "allocator/device_malloc"),  # its arms in another order
    ("8bb03f9372", "transfer/managed"),
    ("6078a3153c", "transfer/non_blocking"),
    ("da52da46a2", "ceiling/peer_copy"),  # the kernel that fills it
    ("da52da46a2", "precision/fp8_linear"),
    ("791d3f9a12", "attention/kernels"),  # two functions that it uses of training.py
    ("cdc3569b21", "fusion/rms_norm"),
]
STEP = (
    "from gpulift_work.loop import run\n\nARMS = ['a', 'b']\n\n\ndef make():\n    return run(4)\n"
)
LOOP = "def run(rows):\n    return rows\n\n\ndef other():\n    return 1\n"
COPY = '#include "kernels/copy.hpp"\nvoid run() { copy(); }\n'
FILES = {
    "benches/a/step.py": STEP,
    "benches/a/copy.cpp": COPY,
    "benches/a/copy_test.cpp": "",
    "workloads/python/gpulift_work/loop.py": LOOP,
    "kernels/copy.hpp": "void copy();\n",
    "kernels/copy.cu": "void copy() {}\n",
    "core/README.md": "",
}


@lru_cache
def state(commit: str) -> texts.State:
    return texts.state_of(CHECKOUT, commit)


@needs_git
@pytest.mark.parametrize(
    ("commit", "technique", "is_same"),
    [*((*one, True) for one in SAME), *((*one, False) for one in OTHER)],
)
def test_records_of_a_commit_are_of_the_text_that_it_had(
    commit: str, technique: str, is_same: bool
) -> None:
    table = json.loads((CHECKOUT / "results" / TEXTS).read_bytes())
    (told,) = (of for one, of in table.items() if one.startswith(commit))
    assert told[technique] == digest_of(state(commit).source(technique))
    assert (told[technique] == digest_of(state(FROZEN).source(technique))) is is_same


@needs_git
def test_of_every_earlier_record_of_a_technique_the_text_is_known() -> None:
    table = read_today(CHECKOUT / "results").texts
    earlier = (one for one in texts.committed(CHECKOUT / "results") if one.minor < HASHES_MEANING)
    untold = {
        one.technique
        for one in earlier
        if one.technique not in table.get(one.context.build.commit, {})
    }
    hint = "run python -m tools.texts in scripts/, commit what it writes"
    assert untold == {f"testing/planted_{one}" for one in ("host", "spin", "triad")}, hint


@needs_git
@pytest.mark.parametrize(
    "technique", ["batch/dynamic_size", "compile/regions", "optimizer/foreach"]
)
def test_an_import_that_moved_left_texts_as_they_were(technique: str) -> None:
    """036b21ff, which by hashes of whole files was another text of 66 techniques."""
    before, after = state("036b21ff~1"), state("036b21ff")
    assert before.files != after.files
    assert before.source(technique) == after.source(technique) != {}


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    done = subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture(name="root")
def repository(tmp_path: Path) -> Path:
    """root: a checkout of FILES, committed."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "A state")
    return git(root, "rev-parse", "HEAD")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def record(commit: str, technique: str = "a/step", dirty: bool = False, **top: Any) -> Record:
    context = sample.gpu_context(build={"commit": commit, "dirty": dirty})
    told = {"context": context, "schema": "1.13", **top}
    return read_record(sample.record(technique, {"n": 1}, [sample.arm("a", 1e-3)], **told))


def test_a_text_is_what_its_commit_had(root: Path) -> None:
    first = git(root, "rev-parse", "HEAD")
    (root / "kernels" / "copy.cu").write_text("// a comment\nvoid copy() {}\n")
    second = commit(root)
    (root / "kernels" / "copy.cu").write_text("void copy() { twice(); }\n")
    third = commit(root)
    records = [record(one, name) for one in (first, second, third) for name in ("a/copy", "a/step")]
    found = texts.texts_of(records, root)
    assert found[first] == found[second]
    assert found[first]["a/copy"] != found[third]["a/copy"]
    assert found[first]["a/step"] == found[third]["a/step"]


def test_a_record_that_says_its_files_is_held_against_its_commit(root: Path) -> None:
    head = git(root, "rev-parse", "HEAD")
    work = {"step.py": sha(STEP), "gpulift_work/loop.py": sha(LOOP)}
    assert texts.texts_of([record(head, source=work)], root)[head].keys() == {"a/step"}
    kernel = {"kernels/copy.cu": sha(FILES["kernels/copy.cu"]), "copy.cpp": sha(COPY)}
    assert texts.texts_of([record(head, "a/copy", source=kernel)], root)[head].keys() == {"a/copy"}
    for wrong in ({"step.py": "0" * 64}, {"gone.py": sha("")}):
        both = [record(head, source=work), record(head, source=work | wrong)]
        assert texts.texts_of(both, root) == {}


@pytest.mark.parametrize(
    ("path", "text", "declared"),
    [
        ("a.py", "X = 1\nTECHNIQUE = {\n    'arms': ['a'],\n}\nY = 2\n", "X = 1\nY = 2\n"),
        ("a.cpp", "x;\nconst gpulift::Technique gpulift::technique{\n};\n", "x;\n\n"),
        ("a.py", "no python", "no python"),
    ],
)
def test_files_were_hashed_whole_or_without_what_they_declare(
    path: str, text: str, declared: str
) -> None:
    assert texts.hashes_before(path, text.encode()) == {sha(text), sha(declared)}


def test_what_git_does_not_tell_has_no_text(root: Path) -> None:
    head = git(root, "rev-parse", "HEAD")
    (root / "benches" / "a" / "broken.py").write_text("def make(:")
    broken = commit(root)
    untold = [
        record(head, dirty=True),
        record("0" * 40),
        record("unknown"),
        record(head, schema="1.14", source={"step.py": "0" * 64}),  # says it itself
        record(head, "own/step"),
        record(broken, "a/broken"),
    ]
    assert texts.texts_of(untold, root) == {}


def test_git_that_lacks_a_commit_says_so(root: Path) -> None:
    with pytest.raises(GpuliftError, match=r"no-such-commit: .*Not a valid object name"):
        texts.state_of(root, "no-such-commit")


def test_records_that_a_change_outdates_are_counted(root: Path) -> None:
    old = texts.state_of(root, "HEAD")
    assert old.techniques == ["a/copy", "a/step"]
    step, copy = old.source("a/step"), old.source("a/copy")
    records = [
        *[record("", schema="1.14", source=step)] * 3,
        *[record("", "a/copy", schema="1.14", source=copy)] * 2,
        record("", schema="1.14", source={"step.py": "0" * 64}),  # of another text before
        record("e" * 40),
    ]
    today = Today(texts={"e" * 40: {"a/step": digest_of(step)}})
    loop = root / "workloads" / "python" / "gpulift_work" / "loop.py"
    loop.write_text(LOOP.replace("return 1", "return 2"))
    assert texts.outdated(records, today, old, texts.state_here(root)) == {}
    loop.write_text(LOOP.replace("return rows", "return -rows"))
    assert texts.outdated(records, today, old, texts.state_here(root)) == {"a/step": 4}
    (root / "benches" / "a" / "copy.cpp").unlink()
    assert texts.outdated(records, today, old, texts.state_here(root))["a/copy"] == 2


def test_an_author_is_told_the_count(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "checkout_root", lambda: root)
    head = git(root, "rev-parse", "HEAD")
    run = root / "results" / "nvidia-h200" / "run"
    run.mkdir(parents=True)
    context = sample.gpu_context(build={"commit": head, "dirty": False})
    arms = [sample.arm("a", 1e-3)]
    launches = sample.launches(2, "a/step", {"n": 1}, arms, context=context)
    (run / "a.step.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in launches))
    (root / "results" / "today.json").write_text('{"techniques": {"a/step": "gone"}}')
    texts.main([])
    assert capsys.readouterr().out == f"{root}/results/texts.json\n"
    assert read_today(root / "results").texts[head].keys() == {"a/step"}
    (root / "benches" / "a" / "step.py").write_text(STEP.replace("4", "8"))
    texts.main(["--outdated", "HEAD"])
    assert capsys.readouterr().out == (
        "     2  a/step\n     2  records are outdated, of 1 techniques\n"
    )
    later = commit(root)
    texts.main(["--outdated", later])
    assert capsys.readouterr().out == "     0  records are outdated, of 0 techniques\n"
    texts.main(["--outdated", head, later])
    assert capsys.readouterr().out.startswith("     2  a/step\n")
