"""The Python environment: complete or not used; the user's own Python; the CUDA toolkit."""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Sandbox

import environment
import packages
import toolkit

PLAN = environment.Plan(("base",))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout for the module under test, in which making a virtual environment takes no time."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "SUCCESSOR", tmp_path / ".setup" / "venv.new")
    monkeypatch.setattr(environment, "REPLACED", tmp_path / ".setup" / "venv.old")
    monkeypatch.setattr(environment, "SCRATCH", tmp_path / ".setup" / "tmp")
    monkeypatch.setattr(environment, "check_room", lambda _: None)
    monkeypatch.setattr(environment, "verify", lambda _: None)

    def create(folder: Path, own_python: bool) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()
        (folder / "bin" / "tool").write_text(f"#!{folder}/bin/python\n")
        (folder / "bin" / "tool").chmod(0o755)
        (folder / "pyvenv.cfg").write_text(f"command = python3 -m venv {folder}\n")

    monkeypatch.setattr(environment, "create_venv", create)
    (tmp_path / ".setup").mkdir()
    return tmp_path


@pytest.mark.parametrize(("names", "told"), [({"numpy"}, False), ({"numpy", "cut-cross-entropy"}, True)])
def test_terms_that_are_not_open_are_named_before_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], names: set[str], told: bool
) -> None:
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(packages, "check_disk", lambda _: None)
    environment.check_room(names)
    assert ("terms of Apple's own" in capsys.readouterr().err) == told
    assert "Apple" in (Path(environment.__file__).parents[1] / "NOTICE").read_text()


def break_off(*_: object, compiled: bool) -> None:
    raise packages.SetupError("broken off")


def install_nothing(*_: object, compiled: bool) -> None:
    pass


def install_group(python: Path, lock: str, *_: object, compiled: bool) -> None:
    """Adds one file, and replaces another as pip does."""
    folder = python.parent.parent
    (folder / f"added-{len(list(folder.iterdir()))}").touch()
    (folder / "version").unlink(missing_ok=True)
    (folder / "version").write_text(lock)


def test_an_environment_that_broke_off_is_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "install", break_off)
    with pytest.raises(packages.SetupError):
        environment.install_plan(PLAN, own_python=False)
    assert [entry.name for entry in place.iterdir()] == [".setup"]
    assert list((place / ".setup").iterdir()) == []


@pytest.mark.parametrize("another_python", [False, True], ids=["extended", "made anew"])
def test_an_environment_works_until_its_successor_does(
    place: Path, monkeypatch: pytest.MonkeyPatch, another_python: bool
) -> None:
    venv = place / ".venv"
    monkeypatch.setattr(packages, "install", install_group)
    environment.install_plan(PLAN, own_python=False)
    before = {file: file.read_bytes() for file in venv.rglob("*") if file.is_file()}
    assert (venv / "bin" / "tool").read_text() == f"#!{venv}/bin/python\n"
    if another_python:
        monkeypatch.setattr(environment, "interpreter", lambda: "/another/python3")

    def break_off_later(python: Path, lock: str, *more: object, compiled: bool) -> None:
        install_group(python, lock, *more, compiled=compiled)
        raise packages.SetupError("broken off")

    monkeypatch.setattr(packages, "install", break_off_later)
    larger = environment.Plan(("base", "torch"))
    with pytest.raises(packages.SetupError):
        environment.install_plan(larger, own_python=False)
    assert {file: file.read_bytes() for file in venv.rglob("*") if file.is_file()} == before
    assert list((place / ".setup").iterdir()) == []

    monkeypatch.setattr(packages, "install", install_group)
    environment.install_plan(larger, own_python=False)
    assert set(environment.read_stamp()) == {"python", "version", "base", "torch"}
    assert (venv / "bin" / "tool").read_text() == f"#!{venv}/bin/python\n"
    assert (venv / "bin" / "tool").stat().st_mode & 0o111
    assert (venv / "pyvenv.cfg").read_text() == f"command = python3 -m venv {venv}\n"
    assert list((place / ".setup").iterdir()) == []


def test_a_disk_that_is_full_while_the_environment_is_copied_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "install", install_group)
    environment.install_plan(PLAN, own_python=False)

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(environment, "clone", fill)
    with pytest.raises(packages.SetupError, match=r"^\[Errno 28\] No space left on device; nothing that worked was"):
        environment.install_plan(environment.Plan(("base", "torch")), own_python=False)
    assert set(environment.read_stamp()) == {"python", "version", "base"}
    assert list((place / ".setup").iterdir()) == []


def test_a_virtual_environment_that_the_disk_has_no_room_for_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "OF_VENV_BYTES", 1 << 62)
    with pytest.raises(packages.SetupError, match=r"^disk too full: set-up needs .* under "):
        environment.make_venv(tmp_path / "venv")
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_was_moved_aside_by_a_call_that_was_killed_comes_back(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "install", install_nothing)
    monkeypatch.setattr(environment, "own_groups", lambda: ("base",))
    monkeypatch.setattr(toolkit, "find_system_toolkit", lambda *_: (toolkit.Toolkit(Path("x"), Path("/"), (13, 0)), []))
    monkeypatch.setattr(toolkit.Toolkit, "has_header", lambda *_: True)
    environment.install_plan(PLAN, own_python=False)
    (place / ".venv").rename(place / ".setup" / "venv.old")
    monkeypatch.setattr(packages, "install", break_off)
    state = place / ".setup" / "state"
    assert environment.main(["prepare", str(state), "needs"]) == 0
    assert f"python={place}/.venv/bin/python\n" in state.read_text()


def test_a_complete_environment_is_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "install", install_nothing)
    environment.install_plan(environment.Plan(("base", "torch")), own_python=False)
    monkeypatch.setattr(packages, "install", break_off)
    environment.install_plan(PLAN, own_python=False)
    environment.install_plan(environment.Plan(("torch", "base")), own_python=False)


def test_an_environment_of_another_python_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "install", install_nothing)
    environment.install_plan(PLAN, own_python=False)
    monkeypatch.setenv("GPULIFT_PYTHON", "/another/python3")
    monkeypatch.setattr(sys, "executable", "/another/python3")
    assert environment.read_stamp() == {}


def test_the_python_of_the_environment_is_gone_on_with_whatever_is_first_on_path(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPULIFT_PYTHON", raising=False)
    monkeypatch.setattr(packages, "install", install_nothing)
    other = place / "python3"
    other.symlink_to("/bin/sh")
    monkeypatch.setattr(environment, "interpreter", lambda: str(other))
    environment.install_plan(PLAN, own_python=False)
    assert environment.kept_interpreter() == str(other)
    monkeypatch.setenv("GPULIFT_PYTHON", "python3")
    assert environment.kept_interpreter() == "", "named, it is meant"
    monkeypatch.delenv("GPULIFT_PYTHON")
    other.unlink()
    assert environment.kept_interpreter() == "", "it is gone"
    other.symlink_to(sys.executable)
    assert environment.kept_interpreter() == "", "it is the running one"


def test_an_environment_on_top_of_an_own_python_is_not_taken_for_one_of_ours(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPULIFT_PYTHON", raising=False)
    monkeypatch.setattr(packages, "install", install_nothing)
    monkeypatch.setattr(environment, "interpreter", lambda: "/bin/sh")
    environment.install_plan(PLAN, own_python=True)
    packages_of = place / ".venv" / "lib" / "python3.11" / "site-packages"
    packages_of.mkdir(parents=True)
    (packages_of / "own_python.pth").touch()
    assert environment.kept_interpreter() == ""


def test_an_active_virtual_environment_makes_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPULIFT_PYTHON", raising=False)
    before = environment.interpreter()
    monkeypatch.setattr(sys, "executable", "/active/venv/bin/python3")
    assert environment.interpreter() == before


def fake_nvcc(sandbox: Sandbox, release: str, headers: tuple[str, ...] = toolkit.HEADERS) -> Path:
    """A compiler that says this release, in a toolkit with these headers."""
    root = sandbox.root / "toolkit"
    for header in headers:
        (root / "include" / header).parent.mkdir(parents=True, exist_ok=True)
        (root / "include" / header).touch()
    body = f"if [[ $1 == --dryrun ]]; then echo '#$ TOP={root}'; else echo 'Cuda tools, release {release}, V'; fi"
    return sandbox.fake("nvcc", body)


def own_python(sandbox: Sandbox) -> dict[str, str]:
    """The environment of a call with the running Python as the user's own, where pip only logs and fails."""
    pip = sandbox.root / "fakes" / "pip"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(f"open({str(sandbox.log)!r}, 'a').write('pip\\n')\nraise SystemExit(1)\n")
    return {"GPULIFT_PYTHON": sys.executable, "PYTHONPATH": str(pip.parent), "GPULIFT_TORCH": "off"}


def test_own_python_with_everything_is_used_and_nothing_is_installed(sandbox: Sandbox) -> None:
    nvcc = fake_nvcc(sandbox, "13.1")
    sandbox.fake("cmake", "echo cmake version 3.28.0")
    sandbox.fake("ninja", "")
    (sandbox.bin / "python3").symlink_to(sys.executable)
    script = sandbox.root / "setup" / "environment.py"
    sandbox.fake("start", f'exec {sys.executable} {script} "$@"')
    state = sandbox.root / ".setup" / "state"
    result = sandbox.call("../bin/start", "prepare", str(state), "needed", **own_python(sandbox))
    assert result.returncode == 0, result.stderr
    assert f"python={sys.executable}\n" in state.read_text()
    assert f"nvcc={nvcc}\n" in state.read_text()
    assert sandbox.lines() == []
    assert not (sandbox.root / ".venv").exists()


def test_every_base_package_is_looked_for_in_an_own_python() -> None:
    lines = [line for line in (packages.SETUP / "base.in").read_text().splitlines() if not line.startswith("#")]
    needed = [line.split(";") for line in lines]
    here = {name.strip() for name, *when in needed if not when or sys.version_info < (3, 11)}
    assert {when.strip() for _, *rest in needed for when in rest} == {'python_version < "3.11"'}
    assert set(environment.OLDEST_PACKAGES) == here
    assert all(importlib.util.find_spec(module) for module in environment.BASE_MODULES)


def test_own_python_that_lacks_something_gets_an_environment_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULIFT_TORCH", "off")
    monkeypatch.setattr(environment, "BASE_MODULES", (*environment.BASE_MODULES, "not_there_at_all"))
    monkeypatch.setattr(packages, "locked_names", lambda _: {"numpy", "not-there-at-all"})
    assert environment.missing_from_own_python().single == ("not-there-at-all",)


def test_a_package_of_an_own_python_that_is_too_old_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    version = importlib.metadata.version
    old = {"typer": "0.12.5", "orjson": "3.11.6"}
    monkeypatch.setenv("GPULIFT_TORCH", "off")
    monkeypatch.setattr(packages, "locked_names", lambda _: {"numpy", "orjson", "typer"})
    monkeypatch.setattr("importlib.metadata.version", lambda name: old.get(name) or version(name))
    assert environment.missing_from_own_python().single == ("orjson", "typer")
    said = capfd.readouterr().err
    assert "its typer is 0.12.5, and 0.27 or later is needed" in said
    assert "its orjson is 3.11.6, and 3.11.7 or later is needed" in said
    old |= {"typer": "0.27.0", "orjson": "3.11.7"}
    assert environment.missing_from_own_python().single == ()


def test_a_toolkit_that_is_too_old_is_not_used_and_said_why(sandbox: Sandbox) -> None:
    nvcc = fake_nvcc(sandbox, "12.9")
    assert toolkit.judge(nvcc) == "it is 12.9, and 13.0 or later is needed"
    found, reasons = toolkit.find_system_toolkit({"PATH": str(sandbox.bin)})
    assert found is None or found.nvcc != nvcc
    assert reasons[0].startswith(f"{nvcc} is not used")


def test_a_toolkit_without_libraries_to_build_with_is_not_used(sandbox: Sandbox) -> None:
    assert "cublasLt.h is not in" in str(toolkit.judge(fake_nvcc(sandbox, "13.0", ("cuda_runtime.h",))))


def test_a_toolkit_that_does_not_compile_with_this_glibc_is_not_used(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = sandbox.root / "toolkit" / "include" / "crt" / "math_functions.h"
    nvcc = fake_nvcc(sandbox, "13.1", (*toolkit.HEADERS, "crt/math_functions.h"))
    header.write_text("extern double   rsqrt(double x);\n")
    monkeypatch.setattr("os.confstr", lambda _: "glibc 2.41")
    assert isinstance(toolkit.judge(nvcc), toolkit.Toolkit)
    monkeypatch.setattr("os.confstr", lambda _: "glibc 2.42")
    assert toolkit.judge(nvcc) == (
        "CUDA 13.1 does not compile with glibc 2.42, which declares rsqrt() otherwise: 13.2 or later is needed"
    )
    header.write_text("extern double   rsqrt(double x) noexcept(true);\n")
    assert isinstance(toolkit.judge(nvcc), toolkit.Toolkit), "this system mended its header"
    header.write_text("extern double   rsqrt(double x);\n")
    assert isinstance(toolkit.judge(fake_nvcc(sandbox, "13.2")), toolkit.Toolkit)


def test_a_toolkit_that_cannot_compile_here_is_not_downloaded(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.confstr", lambda _: "glibc 2.43")
    monkeypatch.setattr(toolkit, "find_system_toolkit", lambda *_: (None, []))
    monkeypatch.setattr(packages, "install", install_nothing)
    assert environment.main(["prepare", str(place / ".setup" / "state"), "needs"]) == 2
    assert "glibc 2.43" in capfd.readouterr().err
    assert not (place / ".venv").exists()


def test_a_named_compiler_comes_first(sandbox: Sandbox) -> None:
    nvcc = fake_nvcc(sandbox, "13.0")
    found, reasons = toolkit.find_system_toolkit({"CUDACXX": str(nvcc), "PATH": "/nowhere"})
    assert found == toolkit.Toolkit(nvcc, sandbox.root / "toolkit", (13, 0))
    assert reasons == []
    assert found.has_header("cublasLt.h")
    assert not found.has_header("nvml.h")


def test_the_same_toolkit_by_another_name_keeps_its_name(sandbox: Sandbox) -> None:
    nvcc = fake_nvcc(sandbox, "13.0")
    (sandbox.root / "elsewhere").symlink_to(sandbox.bin)
    previous = sandbox.root / "elsewhere" / "nvcc"
    for path in (str(sandbox.bin), "/nowhere"):
        found, _ = toolkit.find_system_toolkit({"PATH": path}, previous)
        assert found is not None
        assert found.nvcc == previous
    named, _ = toolkit.find_system_toolkit({"PATH": "/nowhere", "CUDACXX": str(nvcc)}, previous)
    assert named is not None
    assert named.nvcc == nvcc


def test_the_last_set_up_names_a_compiler_unless_packages_brought_it(place: Path) -> None:
    state = place / ".setup" / "state"
    assert environment.previous_compiler(state) is None
    for nvcc, known in ((place / "with space" / "nvcc", True), (place / ".venv" / "nvcc", False)):
        nvcc.parent.mkdir()
        environment.write_state(state, {"python": "it's", "nvcc": str(nvcc)})
        assert environment.previous_compiler(state) is None, "it is gone"
        nvcc.touch()
        assert environment.previous_compiler(state) == (nvcc if known else None)


def test_a_compiler_that_hangs_and_ignores_signals_is_given_up(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    nvcc = sandbox.fake("nvcc", "trap '' TERM INT HUP; sleep 60; exit 0")
    begun = time.monotonic()
    assert toolkit.output_of([str(nvcc), "--version"], 0.2) == ""
    assert time.monotonic() - begun < 30
    assert f"{nvcc} has not ended in 0.2 s" in capfd.readouterr().err


def test_an_error_of_ours_is_not_the_code_of_a_verdict(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "prepare", lambda *_: 1 / 0)
    assert environment.main(["prepare", "state", "needs"]) == 70
    assert "internal error: ZeroDivisionError" in capfd.readouterr().err

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/checkout/.setup")

    monkeypatch.setattr(environment, "prepare", refuse)
    assert environment.main(["prepare", "state", "needs"]) == 2
    assert "/checkout/.setup: Permission denied" in capfd.readouterr().err


def test_no_module_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of a Python runs where none lies."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    (tmp_path / "json.py").write_text("raise SystemExit('hostile')\n")
    command = [sys.executable, "-c", "import json; print(json.__file__)"]
    assert "hostile" in subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    monkeypatch.chdir(tmp_path)
    assert packages.finished(command, 60).stdout.endswith("json/__init__.py\n")


def test_a_named_compiler_that_is_not_there_is_said(sandbox: Sandbox) -> None:
    _, reasons = toolkit.find_system_toolkit({"CUDACXX": "/nowhere/nvcc", "PATH": str(sandbox.bin)})
    assert reasons[0].startswith("/nowhere/nvcc is not used")


def test_libraries_get_their_plain_names_once(tmp_path: Path) -> None:
    for name in ("libx.so.13", "liby.so.1.2", "libz.so", "libz.so.1"):
        (tmp_path / name).write_text(name)
    for _ in range(2):
        toolkit.link_plain_names(tmp_path)
    assert (tmp_path / "libx.so").read_text() == "libx.so.13"
    assert (tmp_path / "liby.so").read_text() == "liby.so.1.2"
    assert (tmp_path / "libz.so").read_text() == "libz.so"


def test_download_without_the_package_that_makes_environments_names_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "The virtual environment was not created because ensurepip is not\navailable.\n\nFailing command: x"
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(environment, "interpreter", lambda: str(python))
    monkeypatch.setattr(packages, "check_disk", lambda _: None)
    assert environment.main(["download", str(tmp_path / "wheels"), "3.11", ""]) == 2
    assert "install python3-venv" in capfd.readouterr().err


@pytest.mark.parametrize("version", ["2.7", "3.9", "3", "3.11.2"])
def test_download_refuses_other_pythons(version: str, tmp_path: Path) -> None:
    with pytest.raises(packages.SetupError, match="give one like"):
        environment.download(tmp_path, version, set())


def test_a_download_takes_what_is_named_and_leaves_the_checkout_alone(
    place: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path_factory.mktemp("wheels") / "a b"
    asked = []

    def log(python: Path, arguments: list[str], scratch: Path) -> None:
        assert folder in scratch.parents
        asked.append({name for name, _ in packages.locked_blocks(Path(arguments[-1]).read_text())})

    monkeypatch.setattr(environment, "make_venv", lambda folder: (folder / "bin").mkdir())
    monkeypatch.setattr(packages, "applicable", lambda _, locks, version: [locks])
    monkeypatch.setattr(packages, "run_pip", log)
    monkeypatch.setenv("GPULIFT_TORCH", "off")
    for only in (set(), {"cuda", "typer", "orjson"}):
        environment.download(folder, "3.12", only)
    assert f": GPULIFT_WHEELHOUSE='{folder}' ./gpulift setup\n" in capsys.readouterr().err
    whole, part = asked
    assert whole == packages.locked_names(["base", "tools", "arms", "cuda"])
    assert part == {*packages.locked_names(["cuda"]), "typer", "orjson"}
    assert not list(folder.iterdir())
    assert [file.name for file in place.rglob("*")] == [".setup"]
    with pytest.raises(packages.SetupError, match=r"^--only no-such: "):
        environment.download(folder, "3.12", {"no-such", "torch"})


def test_needs_are_printed_as_the_call_that_downloads_them(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the Python of the call has is left out, and so is what the environment holds that is there."""
    monkeypatch.setattr(packages, "install", install_nothing)
    monkeypatch.setenv("GPULIFT_PYTHON", "my python")
    monkeypatch.setenv("GPULIFT_TORCH", "off")
    for name in ("CUDACXX", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolkit, "find_system_toolkit", lambda *_: (None, []))
    monkeypatch.setattr(toolkit, "why_no_compiling", lambda _: "")
    plan = environment.Plan(("tools",), ("orjson", "typer"))
    monkeypatch.setattr(environment, "missing_from_own_python", lambda: plan)
    before = sorted(place.rglob("*"))
    assert environment.main(["needs", str(place / ".setup" / "state")]) == 0
    assert sorted(place.rglob("*")) == before
    line, said = capfd.readouterr()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert line == f"./gpulift setup --download DIR --python-version {version} --only tools,cuda,orjson,typer\n"
    assert "GPULIFT_PYTHON='my python' GPULIFT_TORCH=off GPULIFT_WHEELHOUSE=DIR ./gpulift setup" in said
    environment.install_plan(environment.Plan(("tools",)), own_python=True)
    environment.main(["needs", str(place / ".setup" / "state")])
    assert capfd.readouterr().out.endswith(" --only cuda,orjson,typer\n")
    environment.install_plan(environment.Plan(("tools", "cuda")), own_python=True)
    plan = environment.Plan(("tools",))
    assert environment.main(["needs", str(place / ".setup" / "state")]) == 0
    line, said = capfd.readouterr()
    assert (line, said.splitlines()[-1]) == ("", "gpulift: no Python package is missing here")
