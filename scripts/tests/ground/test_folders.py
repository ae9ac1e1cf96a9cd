"""Folders that cannot serve are named before anything is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpulift.commands import bench
from gpulift.engine import doctor
from gpulift.ground import folders, whole
from gpulift.ground.errors import GpuliftError
from gpulift.records.parse import read_record
from tests import runs_made
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

SAY = """
import sys
from pathlib import Path
from gpulift.folders import why_unusable
print(why_unusable(Path(sys.argv[1]), runs_code=True))
"""


def said_on(folder: Path, options: str) -> str:
    """What is said of the folder in a process that has mounted a disk in memory over it."""
    mount = f"mount -t tmpfs -o {options} none '{folder}'"
    filled = f"{{ head -c 1M /dev/zero > '{folder}/all'; }} 2> /dev/null || true"
    shell = f'{mount} && {filled}; exec "$0" -c "$1" "{folder}"'
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, sys.executable, SAY],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "scripts")},
    )
    if done.returncode != 0 or not done.stdout:
        pytest.skip("nothing can be mounted here")
    return done.stdout.strip()


def test_a_folder_serves_and_is_left_as_it_was(tmp_path: Path) -> None:
    assert folders.why_unusable(tmp_path, runs_code=True) == ""
    assert list(tmp_path.iterdir()) == []


def test_it_has_to_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert folders.why_unusable(tmp_path / "none") == "not there"
    assert folders.why_unusable(tmp_path / "file") == "not a folder"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("ro", "read-only"),
        ("size=64k", "full"),
        ("noexec,size=64m", "mounted noexec, and libraries are loaded from it"),
        ("size=64m", ""),
    ],
)
def test_a_mount_may_not_serve(tmp_path: Path, options: str, why: str) -> None:
    assert said_on(tmp_path, options) == why


def test_a_variable_names_the_folder() -> None:
    assert folders.temporary({}) == folders.Chosen(Path("/tmp"), "")
    named = folders.temporary({"TMPDIR": "", "TMP": "/x"})
    assert named == folders.Chosen(Path("/x"), "TMP")
    assert folders.scratch({"GPULIFT_SCRATCH_DIR": "/y"}).variable == "GPULIFT_SCRATCH_DIR"


def test_doctor_names_the_folder_and_what_chose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setenv("GPULIFT_SCRATCH_DIR", str(tmp_path))
    context = read_record(runs_made.without_gpu()[0]).context
    found = {one.what: one for one in doctor.examine(context, [])}
    temporary = found["temporary files"]
    assert not temporary.usable
    assert temporary.found == f"TMPDIR={tmp_path / 'none'} is not there"
    assert temporary.remedy == "name another folder with TMPDIR"
    scratch = found["files of cases"]
    assert (scratch.usable, scratch.found) == (True, f"GPULIFT_SCRATCH_DIR={tmp_path}")


def test_bench_without_a_folder_for_temporary_files_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(whole, "gettempdir", refuse)
    script = tmp_path / "step.py"
    script.touch()
    with pytest.raises(GpuliftError, match="name one in TMPDIR"), bench.prepared(script):
        pass
