#!/usr/bin/env python3
"""Make the Python environment and find the CUDA toolkit; the launcher calls it, with the system's or the user's Python.

prepare STATE NEEDS      set up what is missing, then write what the launcher needs to know to the file STATE; NEEDS
                         names what the checkout asks for
needs STATE              print what would be set up, as the call that downloads it elsewhere; changes nothing
download DIR VERSION ONLY
                         fill a folder with the packages for a machine without a network, for this Python version, or
                         the running one's; with these groups and packages alone, if any are named
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out

import packages
import releases
import toolkit
from packages import SetupError, finished, say
from releases import numbers as version_of

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = "complete.json"
GROUPS = ("base", "tools", "arms", "torch", "cuda", "nvml")
SUCCESSOR = ROOT / ".setup" / "venv.new"  # becomes the environment once it works
REPLACED = ROOT / ".setup" / "venv.old"
SCRATCH = ROOT / ".setup" / "tmp"
KEPT = ROOT / ".setup" / "locks"  # of releases of torch that have none in setup
CHOICES = ("GPULIFT_PYTHON", "PYTHONPATH", "GPULIFT_TORCH", "CUDACXX")  # of the user, which the needs depend on
OF_VENV_BYTES = 40_000_000  # with pip, which is unpacked beside it
START_LIMIT_S = 600  # of a Python on a slow disk that imports all or makes an environment
INTERNAL_ERROR = 70
# What the command line imports, and the oldest versions with which its tests pass.
OLDEST_PACKAGES = {
    "jinja2": (3, 1),
    "matplotlib": (3, 7),
    "msgspec": (0, 22),  # older ones take numbers that no float can hold
    "numpy": (1, 24),
    "nvidia-ml-py": (13,),
    "orjson": (3, 11, 7),  # older ones spell large numbers otherwise, and records would get other ids
    "prometheus-client": (0, 20),
    "psutil": (7,),
    "rich": (13, 8),  # what typer needs
    "scipy": (1, 10),
    "typer": (0, 27),  # the first with errors of its own
    "zstandard": (0, 22),
    **({"tomli": (2,)} if sys.version_info < (3, 11) else {}),
}
MODULES = {"nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client"}  # whose modules have other names
BASE_MODULES = tuple(MODULES.get(name, name) for name in OLDEST_PACKAGES)
OLDEST_PYTHON = (3, 10)
OLDEST_CMAKE = (3, 28)


@dataclass(frozen=True)
class Plan:
    """What has to be in place: groups of packages, and names of single ones to add to the user's own Python."""

    groups: tuple[str, ...]
    single: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """Of all its packages."""
        return packages.locked_names(self.groups) | set(self.single)


def interpreter() -> str:
    """The Python to build on: the user's own as it is; else the one under a virtual environment that may be active."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return sys.executable if os.environ.get("GPULIFT_PYTHON") or not base.exists() else str(base)


def torch_wanted() -> bool:
    """Whether LibTorch is part of the set-up."""
    return releases.chosen() not in releases.OFF


def own_groups() -> tuple[str, ...]:
    """The groups of an environment that builds on no packages of the user's, without those for CUDA."""
    return ("base", "tools", "arms", *(["torch"] if torch_wanted() else []))


def why_too_old(name: str) -> str:
    """Why the running Python's package of this name cannot be used; empty if it can, or is not there."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    oldest = OLDEST_PACKAGES[name]
    if version_of(version) >= oldest:
        return ""
    return f"its {name} is {version}, and {'.'.join(map(str, oldest))} or later is needed"


def tool(name: str, bin_folders: Sequence[Path]) -> Path | None:
    """A program in one of these folders or on PATH."""
    path = os.pathsep.join([*map(str, bin_folders), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def build_tools_suffice(bin_folders: Sequence[Path]) -> bool:
    """Whether a CMake that is new enough, and ninja, are there."""
    cmake = tool("cmake", bin_folders)
    if not cmake or not tool("ninja", bin_folders):
        return False
    version = re.search(r"cmake version (\d+\.\d+)", toolkit.output_of([str(cmake), "--version"]))
    return version is not None and version_of(version[1]) >= OLDEST_CMAKE


def missing_from_own_python() -> Plan:
    """What the user's own Python (the running one) lacks."""
    too_old = {name: reason for name in OLDEST_PACKAGES if (reason := why_too_old(name))}
    for reason in too_old.values():
        say(f"{sys.executable}: {reason}")
    lacks = any(importlib.util.find_spec(module) is None for module in BASE_MODULES)
    single: tuple[str, ...] = ()
    groups = []
    if torch_wanted() and (reason := releases.why_unsuitable()):
        if reason != releases.NO_TORCH and not releases.asked():
            beside = f"GPULIFT_TORCH={releases.default()} puts another beside it, GPULIFT_TORCH=off leaves LibTorch out"
            raise SetupError(f"{sys.executable}: {reason}: install one there; {beside}")
        say(f"{sys.executable}: {reason}")
        groups.append("torch")
    if not build_tools_suffice([Path(sys.executable).parent]):
        groups.append("tools")
    if lacks or too_old:
        installed = {packages.normalise(found.metadata["Name"]) for found in importlib.metadata.distributions()}
        single = tuple(sorted(packages.locked_names(["base"]) - (installed - too_old.keys())))
    return Plan(tuple(groups), single)


def fingerprint(group: str) -> str:
    """Changes when a lock file does."""
    return hashlib.sha256(packages.lock_file(group).read_bytes()).hexdigest()


def stamp_found() -> dict[str, str]:
    """What the environment holds that is there; empty if there is none."""
    try:
        stamp = json.loads((VENV / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and (VENV / "bin" / "python").exists() else {}


def on_own_python() -> bool:
    """Whether the environment that is there was made on top of a user's own Python."""
    return any(VENV.glob("lib/python*/site-packages/own_python.pth"))


def read_stamp() -> dict[str, str]:
    """What the environment holds; empty if it was made from another Python."""
    stamp = stamp_found()
    same = (
        stamp.get("python") == interpreter() and stamp.get("version", "").split(".")[:2] == sys.version.split(".")[:2]
    )
    return stamp if same else {}


def kept_interpreter() -> str:
    """The Python under the environment that is there, if it is not the running one: that another one comes first on
    PATH is no reason to make the environment anew."""
    python = stamp_found().get("python", "")
    if os.environ.get("GPULIFT_PYTHON") or on_own_python() or not os.access(python, os.X_OK):
        return ""
    return "" if os.path.realpath(python) == os.path.realpath(sys.executable) else python


def stamp_of(plan: Plan) -> dict[str, str]:
    """The stamp of an environment for this plan."""
    stamp = {
        "python": interpreter(),
        "version": sys.version,
        **{group: fingerprint(group) for group in plan.groups},
    }
    if plan.single:
        stamp["single"] = " ".join(plan.single) + " of " + fingerprint("base")
    return stamp


def check_room(names: set[str]) -> None:
    """Say what will be installed and how large it is; refuse if it does not fit."""
    size = packages.size_of(names)
    wheelhouse = os.environ.get("GPULIFT_WHEELHOUSE")
    packed = f"{size.told} {'packed' if wheelhouse else 'to download'}"
    unpacked = f", {packages.in_words(size.disk)} on disk" if size.counted else ""
    say(f"installing {len(names)} Python packages from {wheelhouse or 'PyPI'} into {VENV}: {packed}{unpacked}")
    if "cut-cross-entropy" in names:
        say("cut-cross-entropy of them is under terms of Apple's own, which grant no patent licence: see NOTICE")
    needs = {VENV: size.disk + size.download + packages.BUILD_BYTES}
    if not wheelhouse and not os.environ.get("PIP_NO_CACHE_DIR"):
        cache = os.environ.get("PIP_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        needs[Path(cache)] = size.download
    packages.check_disk(needs)


def make_venv(folder: Path) -> None:
    """A new virtual environment, or none and the reason."""
    shutil.rmtree(folder, ignore_errors=True)
    packages.check_disk({folder: OF_VENV_BYTES})  # it would not say so
    made = finished([interpreter(), "-I", "-m", "venv", "--prompt", VENV.name, str(folder)], START_LIMIT_S)
    if made.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        said = made.stdout + made.stderr
        lines = said.strip().splitlines()
        reason = lines[-1] if lines else "no reason given"
        if "ensurepip is not" in said or "No module named" in said:
            reason = "it lacks what that takes; install python3-venv, or name another Python in GPULIFT_PYTHON"
        raise SetupError(f"{interpreter()} cannot make a virtual environment: {reason}")


def create_venv(folder: Path, own_python: bool) -> None:
    """A new virtual environment; on top of the user's own Python it sees that one's packages too."""
    make_venv(folder)
    if own_python:
        # Not --system-site-packages: where that Python is itself a virtual environment, it would be passed over.
        parents = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (site_packages_of(folder) / "own_python.pth").write_text("".join(f"{path}\n" for path in parents))


def site_packages_of(venv: Path) -> Path:
    """Where a virtual environment keeps its packages."""
    return venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def clone(source: str, copy: str) -> None:
    """The same file under another name, which takes no room; pip replaces files, it does not write into them."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)


def begin_successor(own_python: bool, extends: bool) -> None:
    """A new environment, or one with all that is in the one that is there."""
    shutil.rmtree(SUCCESSOR, ignore_errors=True)
    if extends:
        try:
            shutil.copytree(VENV, SUCCESSOR, symlinks=True, copy_function=clone)
        except shutil.Error as error:  # with all that it could not copy
            raise SetupError(f"{error.args[0][0][2]}; nothing that worked was changed") from None
    else:
        create_venv(SUCCESSOR, own_python)


def replace_by_successor() -> None:
    """Put the successor in the place of the environment; its scripts name their own Python."""
    here, there = os.fsencode(SUCCESSOR), os.fsencode(VENV)
    for file in [SUCCESSOR / "pyvenv.cfg", *(SUCCESSOR / "bin").iterdir()]:
        if file.is_file() and not file.is_symlink() and here in (text := file.read_bytes()):
            mode = file.stat().st_mode
            file.unlink()  # it may be one with a file of the environment
            file.write_bytes(text.replace(here, there))
            file.chmod(mode)
    shutil.rmtree(REPLACED, ignore_errors=True)
    if VENV.exists():
        VENV.rename(REPLACED)
    SUCCESSOR.rename(VENV)
    shutil.rmtree(REPLACED, ignore_errors=True)


def lacking_of(plan: Plan) -> Plan:
    """What of the plan the environment that is there does not hold."""
    stamp = read_stamp()
    wanted = stamp_of(plan)
    groups = tuple(group for group in plan.groups if stamp.get(group) != wanted[group])
    return Plan(groups, plan.single if stamp.get("single") != wanted.get("single") else ())


def install_plan(plan: Plan, own_python: bool) -> None:
    """Bring the virtual environment to the plan: made anew if it is of another Python, else extended."""
    stamp = read_stamp()
    lacking = lacking_of(plan)
    if stamp and not lacking.names():
        return
    check_room(lacking.names())
    try:
        make_successor(lacking.groups, lacking.single, own_python, extends=bool(stamp))
        (SUCCESSOR / STAMP).unlink(missing_ok=True)  # it may be one with that of the environment
        (SUCCESSOR / STAMP).write_text(json.dumps({**stamp, **stamp_of(plan)}, indent=1))
        replace_by_successor()
    finally:
        shutil.rmtree(SUCCESSOR, ignore_errors=True)


def make_successor(groups: Sequence[str], single: Sequence[str], own_python: bool, extends: bool) -> None:
    """What takes the place of the environment, which meanwhile stays as it is."""
    begin_successor(own_python, extends)
    python = SUCCESSOR / "bin" / "python"
    for group in groups:
        # Else the first report would compile for seconds; of torch little is ever imported.
        packages.install(python, packages.lock_file(group).read_text(), SCRATCH, compiled=group == "base")
    if single:
        blocks = packages.locked_blocks(packages.lock_file("base").read_text())
        packages.install(python, "".join(f"{block}\n" for name, block in blocks if name in single), SCRATCH)
    verify(python)


def verify(python: Path) -> None:
    """Everything must import before the environment counts as complete."""
    modules = [*BASE_MODULES, *(["torch"] if torch_wanted() else [])]
    result = finished([str(python), "-c", "import " + ", ".join(modules)], START_LIMIT_S)
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise SetupError(f"the new environment does not work: {last[0]}; call again, which makes it anew")


def previous_compiler(state: Path) -> Path | None:
    """The CUDA compiler of the last set-up, unless packages brought it."""
    try:
        values = dict(word.split("=", 1) for word in shlex.split(state.read_text()))
    except (OSError, ValueError):
        return None
    nvcc = Path(values.get("nvcc", ""))
    return nvcc if nvcc.is_file() and VENV not in nvcc.parents else None


def write_state(path: Path, values: dict[str, str]) -> None:
    """Write what the launcher sources, whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()))
    temporary.replace(path)


def plan_of_machine(state: Path) -> tuple[Plan, toolkit.Toolkit | None]:
    """What has to be in place here, and the machine's own CUDA toolkit if it is good enough."""
    cuda, reasons = toolkit.find_system_toolkit(os.environ, previous_compiler(state))
    for reason in reasons:
        say(reason)
    plan = missing_from_own_python() if os.environ.get("GPULIFT_PYTHON") else Plan(own_groups())
    if cuda is None:
        if why := toolkit.why_no_compiling(toolkit.locked_version()):
            raise SetupError(f"{why}; install that and name its nvcc in CUDACXX")
        plan = Plan((*plan.groups, "cuda"), plan.single)
    elif not cuda.has_header("nvml.h") and (plan.groups or plan.single):
        plan = Plan((*plan.groups, "nvml"), plan.single)
    return plan, cuda


def prepare(state: Path, needs: str) -> None:
    """Set up what is missing."""
    own_python = bool(os.environ.get("GPULIFT_PYTHON"))
    plan, cuda = plan_of_machine(state)
    python, bin_folders = Path(sys.executable), [Path(sys.executable).parent]
    if plan.groups or plan.single:
        install_plan(plan, own_python)
        python, bin_folders = (
            VENV / "bin" / "python",
            [VENV / "bin", *(bin_folders if own_python else [])],
        )
    if cuda is None:
        cuda = toolkit.packaged_toolkit(site_packages_of(VENV))
    say(f"CUDA {cuda.version[0]}.{cuda.version[1]} in {cuda.root}; Python {sys.version.split()[0]}, {python}")
    write_state(
        state,
        {
            "python": str(python),
            "bin_path": os.pathsep.join(map(str, bin_folders)),
            "nvcc": str(cuda.nvcc),
            "toolkit_root": str(cuda.root),
            "with_torch": "ON" if torch_wanted() else "OFF",
            "torch": fingerprint("torch") if packages.CHOSEN else "",  # a build is of one
            "needs": needs,
            "chosen_python": os.environ.get("GPULIFT_PYTHON", ""),
            "chosen_torch": os.environ.get("GPULIFT_TORCH", ""),
            "chosen_nvcc": os.environ.get("CUDACXX", ""),
            "chosen_path": os.environ.get("PYTHONPATH", "") if own_python else "",
        },
    )


def print_needs(state: Path) -> None:
    """Print what set-up lacks here as a call for a machine with a network."""
    lacking = lacking_of(plan_of_machine(state)[0])
    if not lacking.names():
        say("no Python package is missing here")
        return
    chosen = [f"{name}={shlex.quote(os.environ[name])} " for name in CHOICES if os.environ.get(name)]
    size = packages.size_of(lacking.names())
    say(
        f"set-up lacks Python packages here, {size.told}: call the line below in this checkout where there is a "
        f"network, bring DIR here, and call {''.join(chosen)}GPULIFT_WHEELHOUSE=DIR ./gpulift setup"
    )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    only = ",".join([*lacking.groups, *lacking.single])
    torch = f" --torch {releases.asked()}" if releases.asked() else ""
    print(f"./gpulift setup{torch} --download DIR --python-version {version} --only {only}")


def platforms() -> list[str]:
    """Pip's options for every Linux that the locked wheels may be tagged for; pip compares tags letter by letter."""
    machine = os.uname().machine
    names = [*(f"manylinux_2_{minor}" for minor in range(40, 4, -1)), "manylinux2014", "manylinux2010", "manylinux1"]
    return [argument for name in [*names, "linux"] for argument in ("--platform", f"{name}_{machine}")]


def blocks_of(groups: Sequence[str], only: set[str]) -> list[tuple[str, str]]:
    """Names and requirements of these groups; if any are named, `only` of groups and packages with these names."""
    every = [
        (group, name, block)
        for group in (GROUPS if only else groups)
        for name, block in packages.locked_blocks(packages.lock_file(group).read_text())
    ]
    if unknown := sorted(only - {word for group, name, _ in every for word in (group, name)}):
        raise SetupError(
            f"--only {','.join(unknown)}: is none of the packages that are installed; was it printed at this commit?"
        )
    return [(name, block) for group, name, block in every if not only or only & {group, name}]


def download(folder: Path, version: str, only: set[str]) -> None:
    """Fill a folder with everything that a machine without a network needs, but for the system's packages.

    Nothing of the checkout is changed, in which another call may set up meanwhile.
    """
    if not re.fullmatch(r"3\.\d+", version) or version_of(version) < OLDEST_PYTHON:
        raise SetupError(f"--python-version {version}: give one like 3.11, from 3.10 on")
    blocks = blocks_of([*own_groups(), "cuda"], only)
    size = packages.size_of({name for name, _ in blocks})
    say(f"downloading packages for Python {version} on {os.uname().machine}: {size.told}")
    folder.mkdir(parents=True, exist_ok=True)
    packages.check_disk({folder: 2 * size.download})  # pip copies what it has downloaded
    # Not in the folder, whose file system may have no links.
    with tempfile.TemporaryDirectory() as helper, tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as scratch:
        make_venv(Path(helper))
        python = Path(helper) / "bin" / "python"
        chosen = Path(helper) / "requirements.txt"
        chosen.write_text("".join(packages.applicable(python, "".join(f"{block}\n" for _, block in blocks), version)))
        arguments = ["download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", str(folder)]
        arguments += ["--python-version", version, "--implementation", "cp"]
        packages.run_pip(python, [*arguments, *platforms(), "-r", str(chosen)], Path(scratch))
    as_there = " with the variables that --needs was called with" if only else ""
    named = shlex.quote(str(folder))
    say(f"{folder} is complete; on the other machine: GPULIFT_WHEELHOUSE={named} ./gpulift setup{as_there}")


def choose_release(command: str, version: str) -> None:
    """Lock files are those of the release of torch that is asked for, if it is not the default: resolved where they are
    not here, for the Python that runs."""
    release = releases.asked()
    if not release or releases.is_of(releases.default(), release):
        return
    releases.tell_untried(release)
    files = releases.committed(release)
    if not files:
        folder = KEPT / releases.key(release)
        call = f"./gpulift setup --torch {release}"
        if command == "needs" and not folder.exists():
            raise SetupError(
                f"what torch {release} needs is resolved where there is a network, by the same Python: call "
                f"`{call} --download DIR` there, bring DIR here, and call `GPULIFT_WHEELHOUSE=DIR {call}`"
            )
        if version and version != f"{sys.version_info.major}.{sys.version_info.minor}":
            raise SetupError(f"torch {release} is resolved for the running Python: name a {version} in GPULIFT_PYTHON")
        if not folder.exists():
            say(f"resolving what torch {release} needs, in a minute or two")
            resolve_release(release, folder)
        files = {group: folder / f"requirements-{group}.txt" for group in releases.GROUPS}
    packages.CHOSEN.update(files)


def resolve_release(release: str, folder: Path) -> None:
    """Into this folder, which is there once it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as helper, tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        make_venv(Path(helper))
        releases.resolve(Path(helper) / "bin" / "python", release, Path(unfinished) / "whole")
        (Path(unfinished) / "whole").replace(folder)


def main(arguments: list[str]) -> int:
    """Entry point; exit code 2 where the user has to do something."""
    if sys.version_info < OLDEST_PYTHON:
        say(f"{sys.executable} is Python {sys.version.split()[0]}, and 3.10 or later is needed: set GPULIFT_PYTHON")
        return 2
    try:
        if arguments[0] == "download":
            folder, version, only = arguments[1:]
            choose_release("download", version)
            version = version or f"{sys.version_info.major}.{sys.version_info.minor}"
            download(Path(folder).resolve(), version, {packages.normalise(name) for name in only.split(",") if name})
            return 0
        if arguments[0] == "prepare" and REPLACED.exists() and not VENV.exists():
            REPLACED.rename(VENV)  # a call was killed in between
        if python := kept_interpreter():
            os.execv(python, [python, str(Path(__file__).resolve()), *arguments])
        choose_release(arguments[0], "")
        if arguments[0] == "prepare":
            prepare(Path(arguments[1]), arguments[2])
        else:
            print_needs(Path(arguments[1]))
    except SetupError as error:
        say(str(error))
        return 2
    except OSError as error:
        say(f"{error.filename or 'set-up'}: {error.strerror or error}; nothing that worked was changed")
        return 2
    except Exception as error:
        traceback.print_exc()
        say(f"internal error: {type(error).__name__}: {error}")
        return INTERNAL_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
