"""Makes a wheel of a build: the package, and below it what the build and the checkout have of it.

NVIDIA's large libraries stay out: modules take those of the user's torch. What needs LibTorch stays
out, and says so.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from platform import machine as machine_type
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from gpulift.engine import machine
from gpulift.gate.git import git
from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.records.read import newest_run, run_folders

OF_TORCH = (
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcupti.so.13",
    "libcusparseLt.so.0",
    "libnccl.so.2",
)
LIBTORCH = "libtorch.so"
NEEDS_CHECKOUT = "measure it from a checkout of gpulift"
FOLDERS = ("core/instrument", "core/python", "core/registers", "workloads/python/gpulift_work")
RESULTS = (
    "certificates",
    "errata.toml",
    "misses.toml",
    "predictions.tsv",
    "reference",
    "texts.json",
    "today.json",
)
TEXTS = ("LICENSE", "NOTICE")
LOCK = "gpulift.lock"  # beside the modules: pip install --require-hashes -r
LEAVE = shutil.ignore_patterns(
    ".*", "__pycache__", "testing", "tests", "*.cpp", "*.stamp", "*.trials"
)
PROGRAMS = ("gpulift-bench", "libgpulift_launch_counter.so")
MODULES = ("modules", "instrument-modules")
MOST_MB = 40


def main(words: Sequence[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser("./gpulift wheel", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"), help="its folder: dist")
    everywhere = "with code for every GPU of compute capability 7.5 or later; ./gpulift builds it"
    parser.add_argument("--all-gpus", action="store_true", help=everywhere)
    out: Path = parser.parse_args(words).out
    build = machine.find_bench().parent
    with TemporaryDirectory() as name:
        folder = Path(name)
        stage(machine.checkout_root(), build, folder / "stage")
        wheel = repaired(packed(folder / "stage"), folder / "repaired")
        size_mb = wheel.stat().st_size / 1e6
        if size_mb > MOST_MB:
            raise GpuliftError(f"{wheel.name} has {size_mb:.1f} MB, {MOST_MB} at most")
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, out)
    print(out / wheel.name)
    print(f"{size_mb:.1f} MB", file=sys.stderr)
    return 0


def version(root: Path, release: str) -> str:
    """That of the project: of the commit that is tagged as its release alone, else with what git
    knows of this state of it."""
    count = git(root, "rev-list", "--count", "HEAD").stdout.strip()
    commit = git(root, "rev-parse", "--short=10", "HEAD").stdout.strip()
    if not (count and commit):
        raise GpuliftError(f"{root}: git does not tell its commit")
    changed = git(root, "status", "--porcelain", "--untracked-files=no").stdout.strip()
    tags = git(root, "tag", "--points-at", "HEAD").stdout.split()
    if f"v{release}" in tags and not changed:
        return release
    return f"{release}.dev{count}+g{commit}{'.dirty' if changed else ''}"


def stage(root: Path, build: Path, folder: Path) -> None:
    """Lays out what is packed: setuptools finds its project there."""
    shutil.copytree(root / "scripts" / "gpulift", folder / "gpulift", ignore=LEAVE)
    project = (root / "scripts" / "pyproject.toml").read_text(encoding="utf-8")
    release = re.search(r'^version = "(.+)"$', project, re.M)
    assert release is not None
    told = f'version = "{version(root, release[1])}"'
    (folder / "pyproject.toml").write_text(project.replace(release[0], told), encoding="utf-8")
    for text in TEXTS:
        shutil.copy(root / text, folder)
    shutil.copy(root / "setup" / "requirements-base.txt", folder / "gpulift" / LOCK)
    files = folder / "gpulift" / "installed"
    for part in FOLDERS:
        shutil.copytree(root / part, files / part, ignore=LEAVE)
    lay_results(root / "results", files / "results")
    lay_build(build, files / "build")


def lay_results(results: Path, there: Path) -> None:
    """What machines are judged by, and of each model the run that is shown beside others."""
    there.mkdir(parents=True)
    for name in RESULTS:
        if (results / name).is_file():
            shutil.copy(results / name, there)
        else:
            shutil.copytree(results / name, there / name, ignore=LEAVE)
    by_model: dict[Path, list[Path]] = {}
    for folder in run_folders(results):
        by_model.setdefault(folder.parent, []).append(folder)
    for model, folders in by_model.items():
        run = newest_run(folders)
        if run is not None and not model.name.startswith("cpu-"):
            shutil.copytree(run.folder, there / model.name / run.folder.name)


def lay_build(build: Path, there: Path) -> None:
    """The engine, and the modules that need no LibTorch."""
    there.mkdir(parents=True)
    for name in PROGRAMS:
        if (build / name).is_file():  # without CUPTI there is nothing to count with
            shutil.copy(build / name, there)
    for name in MODULES:
        shutil.copytree(build / name, there / name, ignore=LEAVE)
        for manifest in (there / name).glob("*.json"):
            manifest.write_text(json.dumps(told(manifest), indent=1) + "\n", encoding="utf-8")


def told(file: Path) -> dict[str, object]:
    """The manifest, with the libraries that its module takes from torch. A module that needs
    LibTorch goes, and its manifest says why."""
    manifest: dict[str, object] = json.loads(file.read_bytes())
    module = file.with_suffix(".so")
    needed = output("patchelf", "--print-needed", module).split() if module.is_file() else []
    if "unavailable" in manifest or LIBTORCH in needed:
        for made in (module, file.with_suffix(".py")):
            made.unlink(missing_ok=True)
        reason = manifest.get("unavailable", "it needs LibTorch, which no wheel can bring")
        return {"id": manifest["id"], "unavailable": reason, "remedy": NEEDS_CHECKOUT}
    libraries = [name for name in OF_TORCH if name in needed]
    return {**manifest, "libraries": libraries} if libraries else manifest


def packed(stage: Path) -> Path:
    """The wheel as setuptools makes it."""
    settings = ["--config-settings", f"--build-option=--plat-name=linux_{machine_type()}"]
    output(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", *settings),
        *("--wheel-dir", stage.parent, stage),
    )
    (wheel,) = stage.parent.glob("*.whl")
    return wheel


def repaired(wheel: Path, folder: Path) -> Path:
    """The same with the small libraries that it needs, tagged by the oldest system that has the
    rest."""
    left_out = [word for library in OF_TORCH for word in ("--exclude", library)]
    output(sys.executable, "-m", "auditwheel", "repair", *left_out, "--wheel-dir", folder, wheel)
    (made,) = folder.glob("*.whl")
    require_named(made)
    return made


def require_named(wheel: Path) -> None:
    """Raises GpuliftError where it brings a library of others that its notices do not name."""
    with ZipFile(wheel) as archive:
        (notice,) = (name for name in archive.namelist() if name.endswith("/licenses/NOTICE"))
        told = archive.read(notice).decode()
        brought = [name for name in archive.namelist() if ".libs/" in name and ".so" in name]
    for name in brought:
        library = re.split(r"-[0-9a-f]{8}\.|\.so", Path(name).name)[0]
        if library not in told:
            raise GpuliftError(f"{wheel.name} brings {library}, which NOTICE does not name", FAILED)


def output(*command: str | Path) -> str:
    """What a program prints. Raises GpuliftError, with its last line, where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise GpuliftError(f"{' '.join(map(str, command[:4]))}: {said[-1]}", FAILED)
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GpuliftError as error:
        sys.exit(str(error))
