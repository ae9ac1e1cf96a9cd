"""The CUDA toolkit: the machine's own where it is good enough, or else the one that packages bring."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packages import SetupError, finished, lock_file, say

OLDEST = (13, 0)
PACKAGES = "packages"  # in CUDACXX: the toolkit of the locked packages, whatever the machine has
# From this glibc on it declares rsqrt() with an exception specification, which CUDA's headers have since this version.
GLIBC_WITH_RSQRT = (2, 42)
OLDEST_WITH_RSQRT = (13, 2)
PLAIN_RSQRT = r"\brsqrt\(double x\)\s*;"
HEADERS = ("cuda_runtime.h", "cublasLt.h", "nvtx3/nvToolsExt.h")


@dataclass(frozen=True)
class Toolkit:
    """A compiler and the folder that its headers and libraries are in."""

    nvcc: Path
    root: Path
    version: tuple[int, int]

    def declares(self, text: str) -> bool:
        """Whether its mathematical functions are declared with this text: some systems mend their headers."""
        files = (self.root / "include", *self.root.glob("targets/*/include"))
        headers = [folder / "crt" / "math_functions.h" for folder in files]
        return any(re.search(text, file.read_text(errors="replace")) for file in headers if file.is_file())

    def has_header(self, name: str) -> bool:
        """Whether this header is in the toolkit."""
        return any((folder / name).exists() for folder in (self.root / "include", *self.root.glob("targets/*/include")))


def candidates(environment: Mapping[str, str], previous: Path | None) -> Iterator[Path]:
    """Compilers that the machine may have, in the order in which CMake would take them, and that of the last set-up."""
    if named := environment.get("CUDACXX"):
        yield Path(shutil.which(named, path=environment.get("PATH")) or named).absolute()
    if found := shutil.which("nvcc", path=environment.get("PATH")):
        yield Path(found).absolute()
    if previous:
        yield previous
    yield Path("/usr/local/cuda/bin/nvcc")


def output_of(command: list[str], limit_s: float = 60) -> str:
    """What a command prints on both streams; nothing if it cannot be run, or does not end."""
    try:
        result = finished(command, limit_s)
    except OSError:
        return ""
    except SetupError as error:
        say(f"{error}; going on without what it would say")
        return ""
    return result.stdout + result.stderr


def root_of(nvcc: Path) -> Path:
    """The toolkit's folder, as the compiler itself says it (it may be a wrapper or a link)."""
    top = re.search(r"^#\$ TOP=(.+)$", output_of([str(nvcc), "--dryrun", "-x", "cu", "/dev/null"]), re.MULTILINE)
    return Path(top[1]).resolve() if top else nvcc.resolve().parent.parent


def glibc_version() -> tuple[int, int]:
    """The C library of this system; zeros where it is another one."""
    try:
        found = re.match(r"glibc (\d+)\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (OSError, ValueError):
        found = None
    return (int(found[1]), int(found[2])) if found else (0, 0)


def why_no_compiling(version: tuple[int, int]) -> str:
    """Why this version's headers cannot be compiled on this system; empty if they can."""
    glibc = glibc_version()
    if version >= OLDEST_WITH_RSQRT or glibc < GLIBC_WITH_RSQRT:
        return ""
    return (
        f"CUDA {version[0]}.{version[1]} does not compile with glibc {glibc[0]}.{glibc[1]}, "
        f"which declares rsqrt() otherwise: {OLDEST_WITH_RSQRT[0]}.{OLDEST_WITH_RSQRT[1]} or later is needed"
    )


def locked_version() -> tuple[int, int]:
    """Of the toolkit that the packages of the group `cuda` bring."""
    locked = re.search(r"^cuda-toolkit==(\d+)\.(\d+)", lock_file("cuda").read_text(), re.MULTILINE)
    return (int(locked[1]), int(locked[2])) if locked else OLDEST


def judge(nvcc: Path) -> Toolkit | str:
    """The toolkit of this compiler, or why it cannot be used."""
    release = re.search(r"release (\d+)\.(\d+)", output_of([str(nvcc), "--version"]))
    if not release:
        return "it does not say its version"
    version = (int(release[1]), int(release[2]))
    if version < OLDEST:
        return f"it is {version[0]}.{version[1]}, and {OLDEST[0]}.{OLDEST[1]} or later is needed"
    found = Toolkit(nvcc, root_of(nvcc), version)
    for header in HEADERS:
        if not found.has_header(header):
            return f"{header} is not in {found.root}"
    if (why := why_no_compiling(version)) and found.declares(PLAIN_RSQRT):
        return why
    return found


def named_as_before(found: Toolkit, previous: Path | None) -> Toolkit:
    """The same toolkit by the compiler that the last set-up named: by another one all would be built again."""
    before = judge(previous) if previous else found
    return before if isinstance(before, Toolkit) and before.root == found.root else found


def find_system_toolkit(
    environment: Mapping[str, str], previous: Path | None = None
) -> tuple[Toolkit | None, list[str]]:
    """The machine's own toolkit, and why those found before it are not used; none where packages are asked for."""
    reasons: list[str] = []
    if environment.get("CUDACXX") == PACKAGES:
        return None, reasons
    seen: set[Path] = set()
    for nvcc in candidates(environment, previous):
        if nvcc in seen or (not nvcc.exists() and str(nvcc) != environment.get("CUDACXX")):
            continue
        seen.add(nvcc)
        result = judge(nvcc)
        if isinstance(result, Toolkit):
            return result if environment.get("CUDACXX") else named_as_before(result, previous), reasons
        reasons.append(f"{nvcc} is not used: {result}")
    return None, reasons


def link_plain_names(folder: Path) -> None:
    """Give each library `libx.so.N` of a folder its plain name `libx.so`, which linkers and CMake look for."""
    for library in sorted(folder.glob("lib*.so.*")):
        plain = folder / (library.name.split(".so.")[0] + ".so")
        if not plain.exists():
            plain.unlink(missing_ok=True)
            plain.symlink_to(library.name)


def packaged_toolkit(site_packages: Path) -> Toolkit:
    """The toolkit that the packages of the group `cuda` brought, made usable."""
    root = site_packages / "nvidia" / "cu13"
    link_plain_names(root / "lib")
    # The compiler and CMake look for lib64 on this platform.
    if not (root / "lib64").exists():
        (root / "lib64").symlink_to("lib")
    result = judge(root / "bin" / "nvcc")
    if isinstance(result, str):
        raise RuntimeError(f"the packaged CUDA compiler cannot be used: {result}")
    return result
