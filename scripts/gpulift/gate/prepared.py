"""A commit's files as a set-up left them: what that was made with, whether all is still so, and a
Python environment of its own where a set-up installs packages."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpulift.gate.jobs import environment_of
from gpulift.ground.errors import FAILED, GpuliftError, write_error
from gpulift.ground.programs import answered, last_error
from gpulift.ground.text import counted, visible
from gpulift.ground.whole import write_whole

Say = Callable[[str], None]
FILE = "prepared.json"  # beside the files; it is there once they are whole
ENVIRONMENT = "env"
# Of an environment that may make another build of the same command all but what sessions and jobs
# of CI are called by.
OF_SESSIONS = re.compile(
    r"_|SHLVL|(OLD)?PWD|COLUMNS|LINES|TERM.*|PS1|LS_COLORS|DISPLAY|WINDOWID|TMUX.*|STY|HOSTNAME"
    r"|(SSH|XDG|DBUS|VSCODE|GITHUB|RUNNER|ACTIONS|CI|GITLAB|BUILD|JENKINS|SLURM|PYTEST)_.*"
    r"|INVOCATION_ID|JOURNAL_STREAM|GPULIFT_.*|CUDA_VISIBLE_DEVICES|GIT_.*"
)
TOOLS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc", "ld", "python", "python3", "rustc")
NAMED_TOOLS = ("CC", "CXX", "CUDACXX")
INSTALLS = re.compile(r"\bpip[0-9.]*\b|\bsetup\.py\b|\b(flit|hatch|maturin|pdm|poetry)\b")
VENV_LIMIT_S = 300.0
# The packages of the environment that it is made from are found behind its own.
BEHIND = "import site; list(map(site.addsitedir, {folders!r}))\n"
PACKAGES = """import json, sys
print(json.dumps([p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]))"""
# By sh, as pip writes its own: behind #! a folder may have no space, nor a long name.
PIP = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


def write(above: Path, source: Path, made_with: str) -> None:
    """Notes that the files are whole, with size and time (ns) of each."""
    document = {"made_with": made_with, "files": _files(source)}
    write_whole(json.dumps(document), above / FILE, lasting=False)


def restore(above: Path, source: Path, made_with: str, say: Say) -> str:
    """Removes what runs left in the folder, that no later one goes on from it. Returns why it has
    to be made anew; nothing where it is as it was left."""
    try:
        before = json.loads((above / FILE).read_bytes())
        known = {name: tuple(was) for name, was in before["files"].items()}
        was_made_with = before["made_with"]
    except FileNotFoundError:
        return "it was not finished"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{FILE} is broken"
    if was_made_with != made_with:
        return "set-up, variables or compilers are others now"
    held = _files(source)
    other = next((name for name, was in known.items() if held.get(name) != was), None)
    if other is not None:
        return f"{visible(other)} is not as it was"
    if told := remove(source, sorted(held.keys() - known.keys())):
        say(f"removed {counted(len(told), 'file')} of earlier runs in {source}, as {told[0]}")
    return ""


def left(above: Path, source: Path) -> list[str]:
    """The files that runs have left since the folder was whole."""
    before = json.loads((above / FILE).read_bytes())["files"]
    return sorted(_files(source).keys() - before.keys())


def remove(source: Path, names: Sequence[str]) -> list[str]:
    """Removes files; returns the names of those that are no bytecode, for people. Raises
    GpuliftError where one cannot be, as of another user."""
    for name in names:
        try:
            (source / name).unlink(missing_ok=True)
        except OSError as error:
            raise write_error(source / name, error) from None
    return [visible(name) for name in names if not name.endswith(".pyc")]


def made_with(setup: str, environment: Mapping[str, str]) -> str:
    """Changes with the command, with the variables that it sees and the tools that it finds."""
    named = [environment.get(name, "") for name in NAMED_TOOLS] if setup else []
    words = {*TOOLS, *" ".join([setup, *named]).split()} if setup else set()
    tools = {}
    for word in sorted(words):
        if found := shutil.which(word, path=environment.get("PATH", os.defpath)):
            status = os.stat(found)
            tools[word] = (os.path.realpath(found), status.st_size, status.st_mtime_ns)
    seen = {name: value for name, value in environment.items() if not OF_SESSIONS.fullmatch(name)}
    everything = [setup, sorted(seen.items()) if setup else [], tools]
    return hashlib.sha256(json.dumps(everything).encode("utf-8", "replace")).hexdigest()


def own_environment(above: Path, setup: str, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment in which a commit is set up and run: where its set-up installs packages, with
    a virtual environment of its own, which leaves that of the user as it is."""
    python = _python(environment)
    if not python or not INSTALLS.search(setup):
        return environment
    own = above / ENVIRONMENT / "bin" / "python"
    if not own.exists():
        _make_environment(python, own, environment)
    return environment_of(own, environment)


def _make_environment(python: str, own: Path, environment: Mapping[str, str]) -> None:
    folder = own.parent.parent
    _asked([python, "-m", "venv", "--without-pip", str(folder)], environment)
    folders = json.loads(_asked([python, "-c", PACKAGES], environment))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "zz_behind.pth").write_text(BEHIND.format(folders=folders), "utf-8")
    for name in ("pip", "pip3"):
        (own.parent / name).write_text(PIP.format(python=shlex.quote(str(own))), "utf-8")
        (own.parent / name).chmod(0o755)


def _asked(command: list[str], environment: Mapping[str, str]) -> str:
    done = answered(command, VENV_LIMIT_S, command[0], environment)
    if done.returncode != 0:
        raise GpuliftError(
            f"{command[0]} makes no environment for --setup: {last_error(done)}", FAILED
        )
    return done.stdout.decode()


def _python(environment: Mapping[str, str]) -> str | None:
    path = environment.get("PATH", os.defpath)
    return shutil.which("python", path=path) or shutil.which("python3", path=path)


def _files(source: Path) -> dict[str, tuple[int, int]]:
    """All but the folder's own notes of git; of a link the link."""
    found = {}
    for folder, folders, files in os.walk(source):
        if Path(folder) == source and ".git" in folders:
            folders.remove(".git")
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*files, *links):
            path = os.path.join(folder, name)
            with suppress(FileNotFoundError):  # somebody still writes there
                status = os.lstat(path)
                found[os.path.relpath(path, source)] = (status.st_size, status.st_mtime_ns)
    return found
