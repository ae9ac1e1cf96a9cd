"""The locked packages: what a lock file names, how large that is, and how pip installs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import getproxies

SETUP = Path(__file__).resolve().parent
# Room for the build itself, beside what the package sizes say.
BUILD_BYTES = 1_000_000_000
RESOLVE_LIMIT_S = 1200  # of pip, which reads what hundreds of versions need


class SetupError(Exception):
    """Set-up cannot go on; the text says what to do, in one line."""


def say(text: str) -> None:
    """Tell the user, on standard error: standard output belongs to the command that follows."""
    print(f"gpulift: {text}", file=sys.stderr, flush=True)


def finished(
    command: Sequence[str], limit_s: float, given: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in a folder in which no module lies.

    After the limit it is killed with all that it started, and not waited for: SetupError.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="replace",
        cwd="/",
        env=environment,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(given, timeout=limit_s)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if isinstance(error, subprocess.TimeoutExpired):
            raise SetupError(f"{command[0]} has not ended in {limit_s:g} s") from None
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def normalise(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


CHOSEN: dict[str, Path] = {}  # lock files of the release of torch that is asked for, by group


def lock_file(group: str) -> Path:
    """The lock file of a group of packages."""
    return CHOSEN.get(group, SETUP / f"requirements-{group}.txt")


def locked_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each requirement of a lock file: its normalised name, and its text with the lines of hashes."""
    for block in re.findall(r"^[A-Za-z0-9].*(?:\n[ \t]+--hash.*)*", text, flags=re.MULTILINE):
        yield normalise(re.split(r"[=\[ ;]", block, maxsplit=1)[0]), block


def locked_names(groups: Iterable[str]) -> set[str]:
    """Names of all packages that these groups lock."""
    return {name for group in groups for name, _ in locked_blocks(lock_file(group).read_text())}


@dataclass(frozen=True)
class Size:
    """Bytes to download, and bytes on disk once unpacked; not `counted`: those of another torch in place of its own."""

    download: int
    disk: int
    counted: bool = True

    @property
    def told(self) -> str:
        """What is downloaded, as people say it."""
        return in_words(self.download) if self.counted else "gigabytes (nobody counted those of this torch)"


def size_of(names: Iterable[str]) -> Size:
    """Size of these packages, from what setup/lock.py measured."""
    wanted, lock = set(names), lock_file("torch")
    own = lock.with_name(lock.name.replace("requirements-torch", "sizes"))
    files = [file for file in (SETUP / "sizes.txt", own) if file.exists()]
    rows = [line.split() for file in files for line in file.read_text().splitlines() if not line.startswith("#")]
    sizes = {name: (int(download), int(disk)) for name, download, disk in rows}
    known = [sizes[name] for name in wanted if name in sizes]
    counted = own in files or not wanted & locked_names(CHOSEN)
    return Size(sum(size[0] for size in known), sum(size[1] for size in known), counted)


def in_words(size: float) -> str:
    """A number of bytes as people say it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def existing_parent(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    while not folder.exists():
        folder = folder.parent
    return folder


def check_disk(needs: Mapping[Path, int], usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage) -> None:
    """Refuse to begin what cannot end: `needs` are the bytes that each folder will take."""
    per_disk: dict[int, int] = {}
    folder_of: dict[int, Path] = {}
    for folder, size in needs.items():
        device = existing_parent(folder).stat().st_dev
        per_disk[device] = per_disk.get(device, 0) + size
        folder_of.setdefault(device, existing_parent(folder))
    for device, size in per_disk.items():
        free = usage(folder_of[device])[2]
        if free < size:
            raise SetupError(
                f"disk too full: set-up needs {in_words(size)} under {folder_of[device]}, {in_words(free)} are free; "
                "make room and call again"
            )


def what_to_call() -> str:
    """How packages of the torch that is asked for come from another machine."""
    release = os.environ.get("GPULIFT_TORCH")
    call = f"./gpulift setup {f'--torch {release} ' if release else ''}--needs"
    return f"`{call}` prints what to call on a machine with a network"


def why_unreachable(errors: str) -> str:
    """Why pip reached no package index: a proxy that refuses says it, one that is silent may be why."""
    if refused := re.search(r"Tunnel connection failed: ([\w ]+)", errors):
        return f"your proxy says {refused[1]};"
    by_proxy = "ProxyError" in errors or not getproxies().keys().isdisjoint(("https", "all"))
    return "does your proxy answer?" if by_proxy else "no network?"


def pip_failure(errors: str) -> str:
    """What a failed pip run means, with the remedy."""
    if "No space left on device" in errors:
        return "disk full while installing: make room and call again"
    if re.search(r"incomplete-download|IncompleteRead|JSONDecodeError", errors):
        return "a download broke off: call again"
    if "DO NOT MATCH THE HASHES" in errors:
        return (
            "a download broke off, or is not what its locked hash says: call again; if it stays so, do not trust the "
            "source"
        )
    lacking = re.search(r"Could not find a version that satisfies the requirement ([^\s;]+)", errors)
    if lacking and (others := re.search(r"\(from versions: (.*\d)\)", errors)):
        newest = ", ".join(others[1].split(", ")[-3:])
        return f"there is no {lacking[1]} for this Python and system; the newest that there are: {newest}"
    if lacking and (wheelhouse := os.environ.get("GPULIFT_WHEELHOUSE")):
        return f"GPULIFT_WHEELHOUSE={wheelhouse} has no wheel of {lacking[1]} for this Python: {what_to_call()}"
    if re.search(r"NewConnectionError|ConnectTimeout|Max retries|Could not find a version|ReadTimeout", errors):
        return (
            f"packages cannot be downloaded from here: {why_unreachable(errors)} {what_to_call()}; bring DIR here "
            "and set GPULIFT_WHEELHOUSE=DIR"
        )
    last = [line for line in errors.splitlines() if line.strip()][-1:]
    return f"pip failed: {last[0].strip() if last else 'it gave no reason'}; call again to resume"


def report_progress(lines: Iterable[str], total: int) -> None:
    """Turn pip's output into one short line per package."""
    begun = 0
    for line in lines:
        if line.startswith("Collecting "):
            begun += 1
        elif match := re.match(r"\s+(Downloading|Using cached) (\S+?)(?:-py3|-cp3)?-[^ ]* (\(.*\))", line):
            text = f"  [{begun}/{total}] {match[2].split('/')[-1]} {match[3]}"
            print(text, file=sys.stderr, flush=True)
        elif line.startswith("Installing collected packages"):
            print("  unpacking", file=sys.stderr, flush=True)


def pip_environment() -> dict[str, str]:
    """The caller's, but for where pip would install elsewhere than in the environment of its Python."""
    elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    return environment | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}


def run_pip(python: Path, arguments: list[str], scratch: Path) -> None:
    """Run pip, whose last argument is a file of requirements; it unpacks in `scratch`, not in a small /tmp."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    environment = pip_environment() | {"TMPDIR": str(scratch)}
    # -I: no module of the current folder or of PYTHONPATH is pip's.
    command = [str(python), "-I", "-u", "-m", "pip", "--retries", "2", arguments[0], "--progress-bar", "off"]
    command += arguments[1:]
    total = len(list(locked_blocks(Path(arguments[-1]).read_text())))
    with (scratch / "errors").open("w+") as errors:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=errors, text=True) as process:
            report_progress(process.stdout or (), total)
        errors.seek(0)
        text = errors.read()
    shutil.rmtree(scratch, ignore_errors=True)
    if process.returncode != 0:
        raise SetupError(pip_failure(text))


def wheelhouse_arguments() -> list[str]:
    """Pip's options to install from the folder that GPULIFT_WHEELHOUSE names, if it does."""
    folder = os.environ.get("GPULIFT_WHEELHOUSE")
    if not folder:
        return []
    if not Path(folder).is_dir():
        raise SetupError(f"GPULIFT_WHEELHOUSE={folder} is no folder")
    return ["--no-index", "--find-links", str(Path(folder).resolve())]


def report(python: Path, arguments: list[str]) -> str:
    """What pip would install, as it reports it."""
    command = [str(python), "-I", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--only-binary", ":all:", "--report", "-", *arguments]
    done = finished(command, RESOLVE_LIMIT_S, environment=pip_environment())
    if "no such option: --report" in done.stderr:
        raise SetupError("this Python's pip is older than 22.2, and cannot resolve: name another in GPULIFT_PYTHON")
    if done.returncode != 0:
        raise SetupError(pip_failure(done.stderr))
    return done.stdout


def resolved(python: Path, requirements: str, constraints: Iterable[str], scratch: Path) -> dict[str, str]:
    """A requirement with its hash of each package that these take, by normalised name."""
    wanted, held = scratch / "wanted.in", scratch / "held.txt"
    wanted.write_text(requirements)
    held.write_text("".join(f"{line}\n" for line in constraints))
    found = json.loads(report(python, [*wheelhouse_arguments(), "-c", str(held), "-r", str(wanted)]))
    wanted.unlink()
    held.unlink()
    blocks = {}
    for one in found["install"]:
        name = normalise(one["metadata"]["name"])
        sha256 = one["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if not sha256:
            raise SetupError(f"your package index tells no hash of {name}, by which to lock it: take another index")
        blocks[name] = f"{name}=={one['metadata']['version']} \\\n    --hash=sha256:{sha256}"
    return blocks


# Pip's own reader of requirements; arguments: the Python version; standard input: requirements without hashes.
_JUDGE_MARKERS = """
import json, sys
from pip._vendor.packaging.requirements import Requirement
target = {"python_version": sys.argv[1], "python_full_version": sys.argv[1] + ".0"}
markers = [Requirement(text).marker for text in json.load(sys.stdin)]
print(json.dumps([marker is None or marker.evaluate(target) for marker in markers]))
"""


def applicable(python: Path, lock: str, version: str) -> list[str]:
    """The requirements of a lock file that apply to a Python version, without their markers.

    Pip itself would judge the markers by the Python that it runs in, which need not be the one of `version`.
    """
    blocks = sorted({block for _, block in locked_blocks(lock)})
    heads = [block.split("\\")[0].strip() for block in blocks]
    judged = finished([str(python), "-I", "-c", _JUDGE_MARKERS, version], 60, json.dumps(heads))
    judged.check_returncode()
    keep = json.loads(judged.stdout)
    chosen = [(head, block) for head, block, kept in zip(heads, blocks, keep, strict=True) if kept]
    return [f"{head.split(';')[0].strip()} \\{block.partition(chr(92))[2]}\n" for head, block in chosen]


def install(python: Path, lock: str, scratch: Path, *, compiled: bool = False) -> None:
    """Install what a lock file says, exactly, checked against its hashes; `compiled`: with bytecode."""
    chosen = scratch.parent / "requirements.txt"
    chosen.parent.mkdir(parents=True, exist_ok=True)
    chosen.write_text("".join(applicable(python, lock, f"{sys.version_info.major}.{sys.version_info.minor}")))
    arguments = ["install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    arguments.append("--compile" if compiled else "--no-compile")
    run_pip(python, [*arguments, *wheelhouse_arguments(), "-r", str(chosen)], scratch)
