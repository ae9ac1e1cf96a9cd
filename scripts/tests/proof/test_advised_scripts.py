"""The scripts that are advised for a certificate, as a user starts them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from proof.advice import SCRIPTS
from proof.advise import SCRIPTS as FOLDER

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(not importlib.util.find_spec("torchvision"), reason="lacks torchvision"),
]
PACKAGES = {"hf_trainer": "accelerate", "lightning_fit": "lightning"}
# In one process, which imports torch once.
RUN_ALL = """
import runpy, sys
for script in sys.argv[1].split():
    sys.argv[1:] = ["--steps", "6", "--size", "small"]
    runpy.run_path(script, run_name="__main__")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_scripts_say_their_time_and_nothing_else() -> None:
    here = [
        name
        for name in SCRIPTS
        if name not in PACKAGES or importlib.util.find_spec(PACKAGES[name]) is not None
    ]
    done = run("-c", RUN_ALL, " ".join(str(FOLDER / f"{name}.py") for name in here))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(here)
    assert all(re.fullmatch(r"steps 3 seconds \d+\.\d{6}", line) for line in lines)


def test_a_fault_that_a_script_does_not_have_is_refused() -> None:
    done = run(str(FOLDER / "no_loader.py"), "--plant", "one_worker")
    assert done.returncode == 2
    assert "invalid choice: 'one_worker'" in done.stderr


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_named(name: str) -> None:
    hidden = f"import runpy, sys; sys.modules[{PACKAGES[name]!r}] = None; "
    done = run("-c", f"{hidden} runpy.run_path({str(FOLDER / f'{name}.py')!r})")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("needs the package")
