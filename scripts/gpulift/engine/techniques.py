"""Techniques outside of the checkout: folders of .py, .cpp and .cu files that a user names.

Each folder becomes a folder of modules for gpulift-bench. The id of a technique is the name of its
folder and of its file, in lower case, what an id cannot hold replaced by `_`.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.engine import machine
from gpulift.engine.machine import ANSWER_TIMEOUT_S, cached
from gpulift.ground import place
from gpulift.ground.errors import FAILED, USAGE, GpuliftError
from gpulift.ground.lock import alone
from gpulift.ground.programs import answered, last_error, tool_output
from gpulift.ground.whole import write_whole

VARIABLE = "GPULIFT_TECHNIQUES"
COMPILED = (".cpp", ".cu")
WORKER = "gpulift_worker.py"
WORKLOADS = "gpulift_work"
PATH_DIGITS = 8
LAST_LINES = 10
WAITING = "another call is setting up or building here; waiting for it"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """The file of a technique, and the id that it gets."""

    file: Path
    id: str

    @property
    def stem(self) -> str:
        """Its manifest, module or script lie beside each other under this name."""
        return self.id.replace("/", ".")

    @property
    def compiled(self) -> bool:
        """Whether it needs a compiler."""
        return self.file.suffix in COMPILED


def asked(named: Sequence[Path] | None) -> list[Path]:
    """The folders of --techniques, or else those of the environment; each once."""
    listed = os.environ.get(VARIABLE, "").split(os.pathsep)
    folders = named or [Path(name) for name in listed if name]
    return list(dict.fromkeys(folder.resolve() for folder in folders))


def prepare(folders: Sequence[Path], say: Say) -> list[Path]:
    """A folder of modules for each folder of techniques, brought up to date.

    Throws GpuliftError, which names the file, where something in them is no technique.
    """
    build = machine.find_bench().parent
    sources_of = {folder: find_sources(folder) for folder in folders}
    every = [source for sources in sources_of.values() for source in sources]
    _require_distinct(every, build / "modules")
    compiled = [source for source in every if source.compiled]
    if compiled and place.INSTALLED:
        raise GpuliftError(f"{compiled[0].file}: C++ and CUDA need a checkout of gpulift")
    if compiled:
        _compile(build, folders, compiled, say)
    prepared = []
    for folder, sources in sources_of.items():
        modules = modules_of(build, folder)
        _forget_others(modules, sources)
        for source in sources:
            if not source.compiled:
                add_script(source, modules)
        prepared.append(modules)
    return prepared


def find_sources(folder: Path) -> list[Source]:
    """What is a technique in a folder: each .cpp and .cu, and each .py with ARMS or TECHNIQUE that
    is not the script of one of these. Tests and other Python files are not."""
    try:
        files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    except FileNotFoundError:
        raise GpuliftError(f"--techniques {folder}: there is no such folder") from None
    except OSError as error:
        raise GpuliftError(f"--techniques {folder}: cannot be read: {error.strerror}") from None
    files = [file for file in files if not file.stem.endswith("_test")]
    compiled = [file for file in files if file.suffix in COMPILED]
    arms = {file.with_suffix(".py") for file in compiled}
    scripts = [file for file in files if file.suffix == ".py" and file not in arms]
    sources = [source_of(file) for file in [*compiled, *filter(_is_technique, scripts)]]
    if not sources:
        raise GpuliftError(
            f"--techniques {folder}: there is no technique in it: a .cpp, a .cu, or a .py with ARMS"
        )
    return sources


def source_of(file: Path, theme: str = "") -> Source:
    """The technique that this file is; its theme is its folder, where none is given."""
    folder = _word(file.resolve().parent.name) or "_"  # of / there is no name
    return Source(file, f"{theme or folder}/{_word(file.stem)}")


def modules_of(build: Path, folder: Path) -> Path:
    """Where the modules of a folder of techniques lie; core/cmake names the same in a build."""
    kept = place.cache() if place.INSTALLED else None
    above = kept / "gpulift" if kept else build
    digits = hashlib.sha256(str(folder).encode()).hexdigest()[:PATH_DIGITS]
    return above / "techniques" / f"{_word(folder.name)}-{digits}"


def add_script(source: Source, modules: Path) -> None:
    """Makes a technique in Python alone a member of a folder of modules. Throws GpuliftError, which
    says what is wrong with the file, where it is no technique.

    The script is linked to, so that it finds what lies beside it.
    """
    worker = machine.checkout_root() / "core" / "python"
    workloads = machine.checkout_root() / "workloads" / "python"
    manifest = _manifest(source, worker / WORKER)
    (modules / WORKLOADS).mkdir(parents=True, exist_ok=True)
    for file in worker.glob("*.py"):
        _replace(modules / file.name, file.read_bytes())
    for file in (workloads / WORKLOADS).glob("*.py"):
        _replace(modules / WORKLOADS / file.name, file.read_bytes())
    _replace_link(modules / f"{source.stem}.py", source.file.resolve())
    _replace(modules / f"{source.stem}.json", manifest)


def _manifest(source: Source, worker: Path) -> bytes:
    python = os.environ.get("GPULIFT_SETUP_PYTHON") or sys.executable
    command = [python, str(worker), "--manifest", source.id, str(source.file)]
    done = answered(command, ANSWER_TIMEOUT_S, str(source.file))
    if done.returncode != 0:
        why = last_error(done)
        named = why if source.file.name in why else f"{source.file.name}: {why}"
        raise GpuliftError(named, USAGE)
    return done.stdout


def _compile(build: Path, folders: Sequence[Path], compiled: Sequence[Source], say: Say) -> None:
    """Builds the modules of these folders, and nothing else, as the build folder was configured."""
    settings = cached(build / "CMakeCache.txt")
    wanted = ";".join(str(folder) for folder in folders)
    targets = [f"techniques.{modules_of(build, folder).name}" for folder in folders]
    lock = machine.checkout_root() / ".setup" / "lock"  # of ./gpulift
    lock.parent.mkdir(exist_ok=True)
    with alone(lock, lambda: say(WAITING)):
        if settings.get(VARIABLE) != wanted:
            cmake = settings.get("CMAKE_COMMAND") or "cmake"
            _run([cmake, f"-D{VARIABLE}={wanted}", str(build)], compiled)
        say(f"bringing {', '.join(source.id for source in compiled)} up to date")
        ninja = settings.get("CMAKE_MAKE_PROGRAM") or "ninja"
        _run([ninja, "-C", str(build), *targets], compiled)


def _run(command: Sequence[str], compiled: Sequence[Source]) -> None:
    """Runs a tool of the build; where it fails, its last lines go to stderr, and the error names
    the file that it was at."""
    try:
        done = tool_output(command)
    except OSError as error:
        raise GpuliftError(f"{command[0]}: cannot be started: {error.strerror}", FAILED) from None
    if done.returncode == 0:
        return
    print("\n".join(done.stdout.strip().splitlines()[-LAST_LINES:]), file=sys.stderr)
    named = (source.file for source in compiled if str(source.file) in done.stdout)
    failed = next(named, compiled[0].file)
    raise GpuliftError(f"{failed}: cannot be built; the lines above say why", USAGE)


def _require_distinct(sources: Sequence[Source], modules: Path) -> None:
    """Refuses a technique whose id another one has, of these folders or of the build."""
    seen: dict[str, Path] = {}
    for source in sources:
        file, id = source.file, source.id
        other = seen.setdefault(id, file)
        if other is not file:
            raise GpuliftError(f"{other} and {file} are both {id}: rename one of them")
        if (modules / f"{source.stem}.json").exists():
            raise GpuliftError(f"{file}: this build has a technique {id}: rename the file")


def _forget_others(modules: Path, sources: Sequence[Source]) -> None:
    """Removes the manifests of files that are gone."""
    stems = {source.stem for source in sources}
    for manifest in modules.glob("*.json"):
        if manifest.stem not in stems:
            manifest.unlink()
            manifest.with_name(f"{manifest.name}.stamp").unlink(missing_ok=True)


def _is_technique(script: Path) -> bool:
    """Whether it sets ARMS or TECHNIQUE; one that cannot be parsed may, and is refused later."""
    try:
        body = ast.parse(script.read_bytes()).body
    except (SyntaxError, ValueError):
        return True
    except OSError as error:
        raise GpuliftError(f"{script}: cannot be read: {error.strerror}") from None
    targets: list[ast.expr] = []
    for statement in body:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets.append(statement.target)
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return "ARMS" in names or "TECHNIQUE" in names


def _replace(file: Path, content: bytes) -> None:
    """A worker that reads the file at this moment gets the old one or the new one."""
    write_whole(content, file, lasting=False)


def _replace_link(link: Path, target: Path) -> None:
    """The same for a link to a file."""
    whole = link.with_name(f".{link.name}.{os.getpid()}")
    whole.unlink(missing_ok=True)
    whole.symlink_to(target)
    os.replace(whole, link)


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "_", text.lower())
