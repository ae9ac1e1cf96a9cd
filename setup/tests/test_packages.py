"""The lock files, the room they need, and what a failed installation says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import SETUP, Sandbox

import packages
import releases

GROUPS = ("base", "tools", "arms", "cuda", "nvml", "torch")
NEWEST = ".".join(map(str, releases.NEWEST_TRIED))
OF_NEWEST = tuple(f"{group}-{NEWEST}" for group in releases.GROUPS)


@pytest.mark.parametrize("group", [*GROUPS, *OF_NEWEST])
def test_every_requirement_is_pinned_and_has_a_hash(group: str) -> None:
    blocks = list(packages.locked_blocks(packages.lock_file(group).read_text()))
    assert blocks
    for name, block in blocks:
        assert re.match(r"[\w.\[\]-]+==[\w.]+", block), name
        assert "--hash=sha256:" in block, name


PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
WITH_NEWEST = (*releases.OTHERS, *OF_NEWEST)


@pytest.mark.parametrize(
    ("version", "groups"),
    [*[(version, GROUPS) for version in PYTHONS], *[(version, WITH_NEWEST) for version in PYTHONS[1:]]],
)
def test_all_groups_agree_on_one_version_of_each_package(version: str, groups: tuple[str, ...]) -> None:
    chosen: dict[str, set[str]] = {}
    locks = "".join(packages.lock_file(group).read_text() for group in groups)
    for line in packages.applicable(Path(sys.executable), locks, version):
        requirement = line.split()[0]
        chosen.setdefault(packages.normalise(requirement.split("==")[0]), set()).add(requirement)
    assert {name: pins for name, pins in chosen.items() if len(pins) > 1} == {}
    assert {"numpy", "torch", "cmake", "nvidia-cuda-nvcc"} <= set(chosen)


def test_markers_are_judged_for_the_version_that_is_asked_for() -> None:
    lock = 'a==1 ; python_full_version < "3.11" \\\n    --hash=sha256:aa\nb==2 \\\n    --hash=sha256:bb\n'
    python = Path(sys.executable)
    assert packages.applicable(python, lock, "3.11") == ["b==2 \\\n    --hash=sha256:bb\n"]
    assert packages.applicable(python, lock, "3.10")[0] == "a==1 \\\n    --hash=sha256:aa\n"


@pytest.mark.parametrize(("groups", "of"), [(GROUPS, ""), (OF_NEWEST, f"-{NEWEST}")])
def test_the_size_of_every_package_is_known(groups: tuple[str, ...], of: str) -> None:
    sizes = (SETUP / f"sizes{of}.txt").read_text()
    known = {line.split()[0] for line in sizes.splitlines()}
    version = sizes.split("CPython ")[1].split(")")[0]
    locks = "".join(packages.lock_file(group).read_text() for group in groups)
    for line in packages.applicable(Path(sys.executable), locks, version):
        assert packages.normalise(re.split(r"[=\[]", line)[0]) in known


def test_a_size_is_that_of_the_torch_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usual = packages.size_of({"torch", "numpy"})
    assert usual.told == packages.in_words(usual.download)
    monkeypatch.setattr(packages, "CHOSEN", {"torch": packages.lock_file(f"torch-{NEWEST}")})
    newest = packages.size_of({"torch", "numpy"})
    assert newest.counted
    assert newest.download != usual.download
    (tmp_path / "requirements-torch.txt").write_text("torch==2.13.0\n")
    monkeypatch.setattr(packages, "CHOSEN", {"torch": tmp_path / "requirements-torch.txt"})
    assert packages.size_of({"torch", "numpy"}).told == "gigabytes (nobody counted those of this torch)"
    assert packages.size_of({"numpy"}).counted, "which is the same with every torch"


def test_a_full_disk_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    needs = {tmp_path / "a": 600, tmp_path / "not" / "there": 500}
    with pytest.raises(packages.SetupError, match=r"disk too full: set-up needs 0 MB under .*call again"):
        packages.check_disk(needs, usage=lambda _: (2000, 1000, 1000))
    packages.check_disk(needs, usage=lambda _: (2000, 900, 1100))


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("OSError: [Errno 28] No space left on device", "disk full"),
        (
            "NewConnectionError: Failed to establish",
            "from here: no network? `./gpulift setup --needs`",
        ),
        ("ProxyError('Cannot connect to proxy.', NewConnectionError(", "from here: does your proxy answer? `./gpulift"),
        (
            "'OSError('Tunnel connection failed: 407 Proxy Authentication Required')'\nCould not find a version",
            "from here: your proxy says 407 Proxy Authentication Required; `./gpulift",
        ),
        (
            "error: incomplete-download\n\nhint: Use --resume-retries",
            "a download broke off: call again",
        ),
        ("OSError: ('Connection broken: IncompleteRead(3 bytes read)'", "a download broke off: call again"),
        ("Traceback\njson.decoder.JSONDecodeError: Expecting value: line 1", "a download broke off: call again"),
        ("ERROR: Could not find a version that satisfies torch", "setup --needs"),
        (
            "Could not find a version that satisfies the requirement a==9 (from versions: 1, 1.1, 2.0, 2.1.1)\nERROR",
            "there is no a==9 for this Python and system; the newest that there are: 1.1, 2.0, 2.1.1",
        ),
        ("Could not find a version that satisfies the requirement a (from versions: none)", "setup --needs"),
        (
            "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
            "broke off, or is not what its locked",
        ),
        ("first\nERROR: something odd\n", "something odd; call again"),
        ("", "it gave no reason"),
    ],
)
def test_what_a_failed_pip_says(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, errors: str, said: str) -> None:
    monkeypatch.setattr(packages, "getproxies", dict)
    monkeypatch.delenv("GPULIFT_TORCH", raising=False)
    requirements = sandbox.root / "requirements.txt"
    requirements.write_text("a==1 \\\n    --hash=sha256:aa\n")
    pip = sandbox.fake("python", f"cat >&2 <<'END'\n{errors}\nEND\nexit 1")
    with pytest.raises(packages.SetupError) as failure:
        packages.run_pip(pip, ["install", "-r", str(requirements)], sandbox.root / "scratch")
    assert said in str(failure.value)
    assert len(str(failure.value).splitlines()) == 1
    assert not (sandbox.root / "scratch").exists()


def test_who_has_a_proxy_is_asked_for_it_and_told_the_call_of_this_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://me:secret@127.0.0.1:9")
    monkeypatch.setenv("GPULIFT_TORCH", "2.13")
    assert packages.pip_failure("ERROR: Max retries exceeded").startswith(
        "packages cannot be downloaded from here: does your proxy answer? `./gpulift setup --torch 2.13 --needs` "
    )


def test_a_wheel_that_a_wheelhouse_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULIFT_WHEELHOUSE", "/wheels")
    monkeypatch.delenv("GPULIFT_TORCH", raising=False)
    said = packages.pip_failure("ERROR: Could not find a version that satisfies the requirement torch==2.11.0 (from ve")
    assert said.startswith("GPULIFT_WHEELHOUSE=/wheels has no wheel of torch==2.11.0 for this Python: ")
    assert "`./gpulift setup --needs` prints what to call" in said


def test_pip_installs_here_whatever_the_environment_says(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = sandbox.root / "requirements.txt"
    requirements.touch()
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER"):
        monkeypatch.setenv(name, "1")
    python = sandbox.fake("python", 'echo "$1 $PIP_TARGET$PIP_PREFIX$PIP_ROOT$PIP_USER" >> "$LOG"')
    packages.run_pip(python, ["install", "-r", str(requirements)], sandbox.root / "scratch")
    assert sandbox.lines() == ["-I 0"]


def test_a_wheelhouse_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPULIFT_WHEELHOUSE", str(tmp_path / "none"))
    with pytest.raises(packages.SetupError, match="is no folder"):
        packages.wheelhouse_arguments()
    monkeypatch.setenv("GPULIFT_WHEELHOUSE", str(tmp_path))
    assert packages.wheelhouse_arguments()[0] == "--no-index"
