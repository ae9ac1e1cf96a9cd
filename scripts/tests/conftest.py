"""A checkout with results and schema, and a build folder with a fake gpulift-bench."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gpulift import cli
from gpulift.records import ids

CHECKOUT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"

# How long an example takes says something of the machine, not of what is tested.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """For texts that tests keep."""
    parser.addoption("--update", action="store_true", help="write the texts in tests/data/kept")


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Holds a text against the file that is named after the test, which `--update` makes anew: what
    a change does to it is read as a diff."""
    name = re.sub(r"\W+", "-", f"{request.node.path.stem}-{request.node.name}").strip("-")
    file = DATA / "kept" / f"{name}.txt"

    def compare(text: str) -> None:
        if request.config.getoption("--update"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), "pytest --update writes it anew"

    return compare


@pytest.fixture
def transcript(
    kept: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> Callable[..., None]:
    """Keeps commands with what they print and their exit codes."""

    def run(*commands: str) -> None:
        told = []
        for command in commands:
            code = cli.main(shlex.split(command))
            out, err = capfd.readouterr()
            told.append(f"$ gpulift {command}\n{out}{err}[exit code {code}]\n")
        kept("\n".join(told))

    return run


@pytest.fixture(scope="session", autouse=True)
def columns() -> Iterator[None]:
    """Tables have room for all of a row; tests of narrow ones say how narrow. Not by a test's own
    monkeypatch, which would then be undone behind fixtures that look at what is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "400")
        yield


@pytest.fixture(scope="session", autouse=True)
def kept_ids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What is kept of records' ids, apart from the user's."""
    file = tmp_path_factory.mktemp("cache") / "record-ids.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "FILE", str(file))
        yield file


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose build folder has the fake gpulift-bench."""
    made = tmp_path / "checkout"
    for part in ("schema", "reference"):
        shutil.copytree(CHECKOUT / "results" / part, made / "results" / part)
    for file in (made / "results" / "reference").glob("*.json"):
        _keep_datasheet(file)
    build = made / "build"
    build.mkdir()
    bench = build / "gpulift-bench"
    fake = Path(__file__).parent / "fake_bench.py"
    bench.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$@"\n', encoding="utf-8")
    bench.chmod(0o755)
    monkeypatch.setenv("GPULIFT_ROOT", str(made))
    monkeypatch.setenv("GPULIFT_BUILD", str(build))
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "scripts"))
    monkeypatch.delenv("FAKE_BENCH", raising=False)
    return made


def _keep_datasheet(file: Path) -> None:
    """Made-up records must not be judged by what real cards reached."""
    document = json.loads(file.read_text(encoding="utf-8"))
    document["entries"] = [one for one in document["entries"] if one["kind"] == "datasheet"]
    file.write_text(json.dumps(document), encoding="utf-8")
