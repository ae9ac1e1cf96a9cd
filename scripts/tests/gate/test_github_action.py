"""What the GitHub action makes of its inputs, which a pull request may have written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.conftest import CHECKOUT
from tests.gate.certified import certificate
from tests.gate.test_repositories import git

pytestmark = pytest.mark.world


def called(root: Path, place: str, **given: str) -> subprocess.CompletedProcess[str]:
    """A copy of the action at this place of a project, which has nothing else of gpulift."""
    script = root / place / "gate"
    script.parent.mkdir(parents=True)
    script.write_bytes((CHECKOUT / "ci" / "github" / "gate").read_bytes())
    inputs = {"BASE": "main", "COMMAND": "sleep 1"}
    return subprocess.run(
        ["bash", script],
        env=os.environ | inputs | given,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def gated(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    """With a program in the place of ./gpulift that shows what it was called with."""
    gpulift = folder / "gpulift"
    gpulift.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n", encoding="utf-8")
    gpulift.chmod(0o755)
    return called(folder, "ci/github", OPTIONS=options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", []),
        ("--within 5m", ["--within", "5m"]),
        ("--metric 'stdout:step: ([0-9.]+)'", ["--metric", "stdout:step: ([0-9.]+)"]),
        ("--x $(touch planted)", ["--x", "$(touch", "planted)"]),
        ("--x `touch planted`; touch planted", ["--x", "`touch", "planted`;", "touch", "planted"]),
    ],
)
def test_options_are_words_and_no_commands(tmp_path: Path, options: str, words: list[str]) -> None:
    done = gated(tmp_path, options)
    forms = ("--format", "markdown", "--format", "github")
    asked = ["gate", "--base", "main", *words, *forms, "--"]
    assert done.stdout == "".join(f"<{word}>" for word in [*asked, "bash", "-c", "sleep 1"])
    assert not (tmp_path / "planted").exists()


def test_options_bring_no_command_of_their_own(tmp_path: Path) -> None:
    done = gated(tmp_path, "--label 'x' -- sh -c 'touch planted'")
    assert done.returncode == 2
    assert "the command is an input of its own" in done.stderr
    assert not done.stdout


def test_a_quote_without_an_end_is_one_line(tmp_path: Path) -> None:
    done = gated(tmp_path, "--x 'open")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "options: --x 'open: a quote has no end"


def copied(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """In a project of others."""
    own = {"RUNNER_TEMP": str(folder), "PYTHONPATH": ""}
    return called(folder, ".github/actions/gpulift", **own, **given)


def test_a_copy_of_it_takes_a_wheel(tmp_path: Path) -> None:
    wheel, info = tmp_path / "gpulift-1.0.0-py3-none-any.whl", "gpulift-1.0.0.dist-info"
    files = {
        "gpulift.py": "import sys\ndef main():\n    print(*sys.argv[1:])\n    return 5\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: gpulift\nVersion: 1.0.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngpulift = gpulift:main\n",
        f"{info}/RECORD": "",
    }
    with ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    done = copied(tmp_path, WHEEL=str(wheel))
    forms = "--format markdown --format github"
    assert (done.returncode, done.stdout) == (5, f"gate --base main {forms} -- bash -c sleep 1\n")


@pytest.mark.parametrize(
    ("wheel", "code", "said"),
    [
        ("", 2, "wheel: none is given, and this copy of the action is in no checkout of gpulift"),
        ("--target=planted", 1, "--target=planted"),
        ("./gone.whl", 1, "gone.whl"),
    ],
)
def test_a_copy_without_a_wheel_that_can_be_had(
    tmp_path: Path, wheel: str, code: int, said: str
) -> None:
    done = copied(tmp_path, WHEEL=wheel)
    assert (done.returncode, said in done.stderr) == (code, True)
    assert not (tmp_path / "planted").exists()


def verified(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """With this Python, in the place of that which the workflow installs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "GITHUB_STEP_SUMMARY": str(folder.parent / "summary")}
    command = [str(CHECKOUT / "ci" / "github" / "verify"), *files]
    return subprocess.run(
        command, env=os.environ | given, cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_certificate_is_of_what_a_pull_request_has(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "--quiet")
    git(project, "commit", "--quiet", "--allow-empty", "-m", "base")
    commit = git(project, "rev-parse", "HEAD").strip()
    certificate(tmp_path, base=commit, head=commit).rename(project / "c.json")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "certificate")
    for module in ("gpulift.py", "json.py"):
        (project / module).write_text("open('planted', 'w')", "utf-8")
    done = verified(project, "c.json", "gone.json")
    assert done.returncode == 0, done.stderr
    assert not (project / "planted").exists(), "what a pull request brings was imported"
    assert "certificate holds: 1 row: 1 improved" in (tmp_path / "summary").read_text("utf-8")
    (project / "more.py").write_text("", "utf-8")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "more")
    done = verified(project, "c.json")
    assert done.returncode == 1
    assert f"c.json: is of commit {commit}, and there are other changes since" in done.stderr
    (project / "c.json").write_text("{}", "utf-8")
    assert verified(project, "c.json").returncode == 2
