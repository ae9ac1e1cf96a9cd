"""The two sides of a gate: build folders, or git references that are built in worktrees.

A reference is checked out and built once below `<checkout>/.gate/<commit>/` and then reused.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.engine import machine
from gpulift.engine.machine import cached
from gpulift.gate.git import check_out
from gpulift.gate.repositories import Repository
from gpulift.ground.errors import FAILED, NOT_COMPARABLE, GpuliftError, RecordError, write_error
from gpulift.ground.lock import alone
from gpulift.ground.programs import tool_output
from gpulift.ground.whole import read_whole
from gpulift.records.decode import decoded
from gpulift.records.model import Context
from gpulift.records.values import Maybe

Say = Callable[[str], None]
FOLDER = ".gate"
COMMIT_DIGITS = 12
LAST_LINES = 10
WAITING = "another gate is building here; waiting for it"
NEEDED = re.compile(r"^(modules/[^/]+\.json\.stamp): ", re.M)
# What has to be the same in both builds, by its name in CMakeCache.txt.
# Also where they are empty: else CMake would take them from what the environment has now.
FLAGS = (
    "CMAKE_CXX_FLAGS",
    "CMAKE_CUDA_FLAGS",
    "CMAKE_EXE_LINKER_FLAGS",
    "CMAKE_MODULE_LINKER_FLAGS",
    "CMAKE_SHARED_LINKER_FLAGS",
    "GPULIFT_BUILD_ENVIRONMENT",
)
SHARED = (
    *FLAGS,
    "CMAKE_BUILD_TYPE",
    "CMAKE_CXX_COMPILER",
    "CMAKE_CUDA_COMPILER",
    "CMAKE_CUDA_HOST_COMPILER",
    "CMAKE_BUILD_RPATH",
    "CMAKE_MAKE_PROGRAM",
    "CUDAToolkit_ROOT",
    "GPULIFT_ARCHITECTURES",
    "GPULIFT_CUDA",
    "GPULIFT_NVML_INCLUDE",
    "GPULIFT_PYTHON_EXECUTABLE",
    "GPULIFT_SANITIZE",
    "GPULIFT_TORCH",
)


@dataclass(frozen=True)
class Build:
    """A build folder that can measure. `name` is for people, `stem` for names of folders, `python`
    the interpreter of Python arms where it is not the usual one, `takes_rows` whether its
    gpulift-bench has --rows."""

    folder: Path
    name: str
    stem: str
    abi_tag: str
    context: Context
    python: Path | None = None
    takes_rows: bool = True

    @property
    def bench(self) -> Path:
        """The program that measures."""
        return self.folder / "gpulift-bench"

    @property
    def modules(self) -> Path:
        """The techniques."""
        return self.folder / "modules"


@dataclass(frozen=True)
class Manifest:
    """What is read here of the manifest of a technique."""

    abi_tag: str = ""
    unavailable: str = ""
    script: bool = False
    gpus: Maybe[int] = None


def own_build(gpu: int | None) -> Build:
    """The checkout's own build, as it is."""
    return _open(machine.find_bench().parent, "this checkout", gpu)


def require_known(references: Iterable[str], gpu: int | None) -> None:
    """Refuses what is no build folder and no git reference, or a GPU that is not there, before
    anything is built for minutes."""
    unbuilt = [one for one in references if not _is_build(Path(one))]
    for reference in unbuilt:
        resolve(reference, machine.checkout_root())
    if unbuilt:
        machine.describe_asked(machine.find_bench(), gpu)


def find_build(reference: str, gpu: int | None, say: Say, until_s: float | None = None) -> Build:
    """The build folder, or the build of the git reference, which is made where it is missing.

    A build that is not done at `until_s`, a time of time.monotonic(), is broken off (exit code 2).
    """
    folder = Path(reference)
    if _is_build(folder):
        return _open(folder.resolve(), f"folder {reference}", gpu)
    commit = resolve(reference, machine.checkout_root())
    return _open(build_commit(commit, say, until_s), reference, gpu)


def resolve(reference: str, checkout: Path) -> str:
    """The full commit of a git reference of the checkout."""
    try:
        repository = Repository.here(checkout)
        if not repository.inside:
            return repository.commit(reference)
    except GpuliftError as error:
        raise GpuliftError(
            f"{error}; {reference or 'nothing'} is no build folder either (with gpulift-bench and"
            " modules)"
        ) from None
    raise GpuliftError(
        f"{checkout} is no repository of its own but a folder of another one: name build folders"
        " instead"
    )


def build_commit(commit: str, say: Say, until_s: float | None = None) -> Path:
    """The build folder of a commit, with the compilers and options of the running build."""
    checkout = machine.checkout_root()
    above = checkout / FOLDER / commit[:COMMIT_DIGITS]
    settings = cached(machine.find_bench().parent / "CMakeCache.txt")
    try:
        above.mkdir(parents=True, exist_ok=True)
        with alone(checkout / FOLDER / "lock", lambda: say(WAITING)):
            if not (above / "source").is_dir():
                check_out(checkout, commit, above / "source")
            _build(above, settings, say, until_s)
    except OSError as error:
        raise write_error(above, error) from None
    return above / "build"


def configure_flags(settings: dict[str, str]) -> list[str]:
    """The options of cmake that make a build like the running one."""
    return [
        f"-D{name}={settings[name]}"
        for name in SHARED
        if settings.get(name) or (name in FLAGS and name in settings)
    ]


def needed_targets(all_targets: str) -> list[str]:
    """Of `ninja -t targets all` what measuring needs: the program and the modules."""
    return ["gpulift-bench", *NEEDED.findall(all_targets)]


def _build(above: Path, settings: dict[str, str], say: Say, until_s: float | None) -> None:
    build, flags = above / "build", configure_flags(settings)
    made_with = build / "configured_for"
    wanted = "\n".join(flags) + "\n"
    ninja = settings.get("CMAKE_MAKE_PROGRAM") or "ninja"
    before = made_with.read_text(encoding="utf-8") if made_with.is_file() else ""
    if before != wanted or not (build / "build.ninja").is_file():
        say(f"configuring {above.name}")
        made_with.unlink(missing_ok=True)  # what fails now has taken away what was there
        cmake = settings.get("CMAKE_COMMAND") or "cmake"
        command = [cmake, "--fresh", "-S", str(above / "source"), "-B", str(build), "-G", "Ninja"]
        _run([*command, *flags], f"{above.name} cannot be configured", until_s, say)
        made_with.write_text(wanted, encoding="utf-8")
    listed = _run(
        [ninja, "-C", str(build), "-t", "targets", "all"],
        f"{above.name} cannot list its targets",
        until_s,
        say,
    )
    say(f"bringing {above.name} up to date (a build takes minutes the first time)")
    targets = needed_targets(listed)
    _run([ninja, "-C", str(build), *targets], f"{above.name} cannot be built", until_s, say)


def _run(command: Sequence[str], failure: str, until_s: float | None, say: Say) -> str:
    """What the command prints; its last lines are said where it fails."""
    left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
    try:
        done = tool_output(command, left_s)
    except OSError as error:
        raise GpuliftError(f"{command[0]}: cannot be started: {error.strerror}", FAILED) from None
    except subprocess.TimeoutExpired:
        raise GpuliftError(
            f"--budget ended before the builds did: {failure} in time. What was built is kept;"
            " give a larger --budget, or name build folders"
        ) from None
    if done.returncode != 0:
        for line in _last(done.stdout, LAST_LINES).splitlines():
            say(line)
        raise GpuliftError(failure, FAILED)
    return done.stdout


def _open(folder: Path, name: str, gpu: int | None) -> Build:
    if not _is_build(folder):
        raise GpuliftError(f"{folder} is no build folder: gpulift-bench or modules is missing")
    context = machine.describe_asked(folder / "gpulift-bench", gpu)
    commit = context.build.commit[:7] or "unknown"
    changes = " with uncommitted changes" if context.build.dirty else ""
    return Build(
        folder=folder,
        name=f"{name} ({commit}{changes})",
        stem=f"{commit}-dirty" if context.build.dirty else commit,
        abi_tag=abi_tag(folder / "modules"),
        context=context,
        takes_rows=_takes_rows(folder / "modules"),
    )


def abi_tag(modules: Path) -> str:
    """What all modules of a folder were built against, from their manifests."""
    tags = {
        manifest.abi_tag
        for manifest in _manifests(modules)
        # A technique in Python alone has no module that was built.
        if not (manifest.unavailable or manifest.script)
    }
    if len(tags) != 1:
        many = "were built against different headers" if tags else "hold nothing to measure"
        raise GpuliftError(f"the modules in {modules} {many}: build again", NOT_COMPARABLE)
    return tags.pop()


def _takes_rows(modules: Path) -> bool:
    """Whether gpulift-bench beside the modules has --rows: since manifests tell the number of
    GPUs."""
    return any(manifest.gpus is not None for manifest in _manifests(modules))


def _manifests(modules: Path) -> Iterator[Manifest]:
    for file in sorted(modules.glob("*.json")):
        try:
            yield decoded(read_whole(file), Manifest, str(file))
        except RecordError:
            raise GpuliftError(f"{file} is no manifest: build again") from None


def _is_build(folder: Path) -> bool:
    return os.access(folder / "gpulift-bench", os.X_OK) and (folder / "modules").is_dir()


def _last(text: str, lines: int) -> str:
    return "\n".join(text.strip().splitlines()[-lines:]) or "no reason was given"
