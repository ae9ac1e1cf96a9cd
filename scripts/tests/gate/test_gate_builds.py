"""The two sides of a gate: references of a real git repository, with a fake cmake and ninja."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpulift.engine.machine import cached
from gpulift.gate.builds import (
    abi_tag,
    build_commit,
    configure_flags,
    find_build,
    needed_targets,
    require_known,
    resolve,
)
from gpulift.ground.errors import GpuliftError
from tests.fake_gate import TAG, FakeBench, make_build, technique

pytestmark = pytest.mark.world

CMAKE = """#!/bin/sh
while [ "$1" != -B ]; do shift; done
mkdir -p "$2"
echo configured >> "$2/../said"
touch "$2/build.ninja"
"""
NINJA = """#!/bin/sh
case "$*" in
*"-t targets all") echo "modules/a.b.json.stamp: CUSTOM_COMMAND"; exit 0 ;;
esac
echo "built $*" >> "$2/../said"
mkdir -p "$2/modules"
cp "$FAKE_BENCH_FILE" "$2/gpulift-bench"
cp "$FAKE_MODULES"/* "$2/modules"
"""
BROKEN = """#!/bin/sh
case "$*" in *"-t targets all") exit 0 ;; esac
seq 1 30
echo "a.cpp:1: error: no such thing"
exit 1
"""
SLOW = """#!/bin/sh
case "$*" in *"-t targets all") exit 0 ;; esac
exec sleep 60
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def program(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
    return file


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits, whose build folder says to use a fake cmake and ninja."""
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    for number in (1, 2):
        (root / "file").write_text(f"{number}\n")
        git(root, "add", "file")
        git(root, "commit", "--quiet", "-m", f"commit {number}")
    build = make_build(root / "build", (technique("a/b"),))
    cmake = program(tmp_path / "cmake", CMAKE)
    ninja = program(tmp_path / "ninja", NINJA)
    (build / "CMakeCache.txt").write_text(
        f"# comment\nCMAKE_COMMAND:INTERNAL={cmake}\nCMAKE_MAKE_PROGRAM:FILEPATH={ninja}\n"
        "CMAKE_CXX_COMPILER:FILEPATH=/usr/bin/c++\nGPULIFT_CUDA:STRING=ON\n"
        "GPULIFT_SANITIZE:STRING=\n//a text\nGPULIFT_COMMIT:STRING=abc\n"
    )
    monkeypatch.setenv("GPULIFT_ROOT", str(root))
    monkeypatch.delenv("GPULIFT_BUILD", raising=False)
    monkeypatch.setenv("FAKE_BENCH_FILE", str(build / "gpulift-bench"))
    monkeypatch.setenv("FAKE_MODULES", str(build / "modules"))
    FakeBench().install(monkeypatch)
    return root


def test_a_reference_is_built_once_in_a_worktree_of_its_own(checkout: Path) -> None:
    said: list[str] = []
    found = find_build("main~1", None, said.append)
    commit = git(checkout, "rev-parse", "main~1")
    assert found.folder == checkout / ".gate" / commit[:12] / "build"
    assert found.abi_tag == TAG
    assert found.name == "main~1 (abc1234)"
    assert (found.folder.parent / "source" / "file").read_text() == "1\n"
    assert (checkout / "file").read_text() == "2\n"
    find_build("main~1", None, said.append)
    log = (found.folder.parent / "said").read_text().splitlines()
    assert [line.split()[0] for line in log] == ["configured", "built", "built"]
    assert log[1].endswith("gpulift-bench modules/a.b.json.stamp")
    kept = (found.folder / "configured_for").read_text()
    assert "-DGPULIFT_CUDA=ON\n" in kept


def test_other_compilers_configure_again(checkout: Path) -> None:
    found = find_build("main", None, lambda text: None)
    cache = checkout / "build" / "CMakeCache.txt"
    cache.write_text(cache.read_text().replace("/usr/bin/c++", "/usr/bin/clang++"))
    find_build("main", None, lambda text: None)
    assert (found.folder.parent / "said").read_text().count("configured") == 2


def test_what_could_not_be_configured_otherwise_is_configured_again(
    checkout: Path, tmp_path: Path
) -> None:
    found = find_build("main", None, lambda text: None)
    cache = checkout / "build" / "CMakeCache.txt"
    before = cache.read_text()
    cache.write_text(before.replace("/usr/bin/c++", "/usr/bin/clang++"))
    program(tmp_path / "cmake", "#!/bin/sh\nexit 1\n")
    with pytest.raises(GpuliftError, match="cannot be configured"):
        find_build("main", None, lambda text: None)
    cache.write_text(before)
    program(tmp_path / "cmake", CMAKE)
    find_build("main", None, lambda text: None)
    assert (found.folder.parent / "said").read_text().count("configured") == 2


def test_a_worktree_that_someone_removed_is_made_again(checkout: Path) -> None:
    found = find_build("main", None, lambda text: None)
    subprocess.run(["rm", "-r", found.folder.parent], check=True)
    again = find_build("main", None, lambda text: None)
    assert (again.folder.parent / "source" / "file").is_file()


def test_a_build_that_fails_hands_on_the_last_lines(checkout: Path, tmp_path: Path) -> None:
    program(tmp_path / "ninja", BROKEN)
    said: list[str] = []
    with pytest.raises(GpuliftError, match="cannot be built") as failed:
        find_build("main", None, said.append)
    assert failed.value.exit_code == 1
    assert said[-11].startswith("bringing ")
    assert said[-1] == "a.cpp:1: error: no such thing"


def test_a_build_ends_with_the_budget(checkout: Path, tmp_path: Path) -> None:
    program(tmp_path / "ninja", SLOW)
    started_s = time.monotonic()
    with pytest.raises(GpuliftError, match="--budget ended before the builds did") as ended:
        find_build("main", None, lambda text: None, started_s + 1.0)
    assert ended.value.exit_code == 2
    assert time.monotonic() - started_s < 30


def test_an_interrupted_build_is_ended(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "ninja", SLOW)
    builds: list[subprocess.Popen[str]] = []
    communicate = subprocess.Popen.communicate

    def interrupted(
        process: subprocess.Popen[str], said: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        if "gpulift-bench" not in process.args:  # type: ignore[operator]
            return communicate(process, said, timeout)
        builds.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find_build("main", None, lambda text: None)
    (build,) = builds
    assert build.wait(timeout=30) == -signal.SIGTERM


def test_wrong_references_are_refused_before_anything_is_built(checkout: Path) -> None:
    require_known(["main", "main~1", str(checkout / "build")], None)
    with pytest.raises(
        GpuliftError, match=r"'nothere' is no reference of .*; nothere is no build folder either"
    ):
        require_known(["main", "nothere"], None)
    assert not (checkout / ".gate").exists()


def test_a_missing_compiler_driver_is_one_line(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "cmake").unlink()
    with pytest.raises(GpuliftError, match="cannot be started") as failed:
        find_build("main", None, lambda text: None)
    assert failed.value.exit_code == 1


@pytest.mark.parametrize("reference", ["nowhere", "--all", "", "HEAD:file"])
def test_what_is_no_reference_is_exit_2(checkout: Path, reference: str) -> None:
    with pytest.raises(
        GpuliftError, match=r"is no reference of .* is no build folder either"
    ) as refused:
        find_build(reference, None, lambda text: None)
    assert refused.value.exit_code == 2


def test_a_shallow_clone_says_so(checkout: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{checkout}", str(shallow))
    with pytest.raises(GpuliftError, match="the clone is shallow: git fetch --unshallow"):
        resolve("HEAD~1", shallow)
    assert resolve("HEAD", shallow) == git(checkout, "rev-parse", "HEAD")


def test_a_folder_of_another_repository_is_not_that_one(checkout: Path) -> None:
    inner = checkout / "vendored"
    inner.mkdir()
    with pytest.raises(GpuliftError, match="is no repository of its own but a folder of another"):
        resolve("HEAD", inner)


def test_without_git_there_are_build_folders(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GpuliftError, match="is in no git repository"):
        resolve("HEAD", tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GpuliftError, match="git is not installed"):
        resolve("HEAD", checkout)
    folder = str(checkout / "build")
    assert find_build(folder, None, lambda text: None).name == f"folder {folder} (abc1234)"


def test_a_checkout_of_another_owner_is_refused_with_the_remedy_of_git(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GpuliftError, match=r"git config --global --add safe\.directory"):
        resolve("HEAD", checkout)


def test_a_checkout_without_a_build_cannot_build_a_reference(checkout: Path) -> None:
    (checkout / "build" / "CMakeCache.txt").unlink()
    with pytest.raises(GpuliftError, match=r"\./gpulift setup"):
        build_commit(git(checkout, "rev-parse", "HEAD"), lambda text: None)


def test_the_options_of_the_running_build_are_handed_on(checkout: Path) -> None:
    flags = configure_flags(cached(checkout / "build" / "CMakeCache.txt"))
    assert "-DCMAKE_CXX_COMPILER=/usr/bin/c++" in flags
    assert not [flag for flag in flags if "SANITIZE" in flag or "COMMIT" in flag]


def test_only_what_measuring_needs_is_built() -> None:
    listed = """test.host.units: CXX_EXECUTABLE_LINKER
modules/a.b.json.stamp: CUSTOM_COMMAND
modules/a.b.so: CXX_MODULE_LIBRARY_LINKER
testing-modules/testing.fine.json.stamp: CUSTOM_COMMAND
testing-duet/head/testing.planted_host.json.stamp: CUSTOM_COMMAND
/abs/modules/a.b.json.stamp: CUSTOM_COMMAND
"""
    assert needed_targets(listed) == ["gpulift-bench", "modules/a.b.json.stamp"]


def test_a_technique_in_python_alone_was_built_against_nothing(tmp_path: Path) -> None:
    script = technique("a/c", script=True)
    del script["abi_tag"]
    folder = make_build(tmp_path / "build", (technique("a/b"),)) / "modules"
    (folder / "a.c.json").write_text(json.dumps(script))
    assert abi_tag(folder) == TAG


@pytest.mark.parametrize("knows", [True, False])
def test_a_build_whose_manifests_do_not_count_gpus_takes_no_rows(
    checkout: Path, tmp_path: Path, knows: bool
) -> None:
    manifest = technique("a/b")
    if not knows:
        manifest = {**manifest, "needs_device": True}
        del manifest["gpus"]
    folder = make_build(tmp_path / "other", (manifest,))
    assert find_build(str(folder), None, lambda text: None).takes_rows == knows


def test_a_folder_of_several_builds_is_refused(tmp_path: Path) -> None:
    folder = make_build(tmp_path / "build", (technique("a/b"), technique("a/c"))) / "modules"
    assert abi_tag(folder) == TAG
    (folder / "a.d.json").write_text(json.dumps({"id": "a/d", "unavailable": "built without X"}))
    assert abi_tag(folder) == TAG
    (folder / "a.c.json").write_text(json.dumps(technique("a/c", abi_tag="another")))
    with pytest.raises(GpuliftError, match="built against different headers") as refused:
        abi_tag(folder)
    assert refused.value.exit_code == 4
    (folder / "a.c.json").write_text("{")
    with pytest.raises(GpuliftError, match="is no manifest"):
        abi_tag(folder)


def test_a_checkout_that_cannot_be_written_is_one_line(checkout: Path) -> None:
    (checkout / ".gate").touch()
    with pytest.raises(GpuliftError, match="cannot be written"):
        find_build("main", None, lambda text: None)
