"""How the probe gets into a script, here beside a torch and a probe that only tell of it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

INJECTED = CHECKOUT / "scripts" / "gpulift" / "advise" / "inject" / "sitecustomize.py"
A_B = 'print("a")\nimport torch\nprint("b")\nimport torch\n'
PROBE = 'def start():\n    import torch\n    print("start", torch.whole)\n'


class World:
    """A folder with the injected file and a probe, and one with the script and its torch."""

    def __init__(self, folder: Path) -> None:
        self.inject, self.user = folder / "inject", folder / "user"
        self.env = {
            "PATH": os.environ["PATH"],
            "GPULIFT_ADVISE": "{}",
            "PYTHONPATH": os.pathsep.join(map(str, (self.inject, self.user))),
        }
        self.write(self.inject / "sitecustomize.py", INJECTED.read_text(encoding="utf-8"))
        self.write(self.inject / "gpulift_probe.py", PROBE)
        self.write(self.user / "torch" / "__init__.py", 'print("torch")\nwhole = True\n')

    def write(self, file: Path, text: str) -> None:
        """With the folders it needs."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run(self, text: str, python: str = sys.executable) -> list[str]:
        """What a script printed, which has to end well."""
        self.write(self.user / "script.py", text)
        ended = self.ended(python)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout.splitlines()

    def ended(self, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
        """The script, run."""
        return subprocess.run(
            [python, str(self.user / "script.py")],
            env=self.env,
            text=True,
            capture_output=True,
            check=False,
        )


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_starts_behind_torch(world: World) -> None:
    assert world.run(A_B) == ["a", "torch", "start True", "b"]


def test_a_script_without_torch(world: World) -> None:
    assert world.run('print("a")') == ["a"]


def test_only_for_advice(world: World) -> None:
    del world.env["GPULIFT_ADVISE"]
    assert world.run(A_B) == ["a", "torch", "b"]


def test_asking_for_torch_starts_nothing(world: World) -> None:
    asks = 'import importlib.util\nprint(importlib.util.find_spec("torch").name)\n'
    assert world.run(asks) == ["torch"]
    assert world.run(asks + A_B) == ["torch", "a", "torch", "start True", "b"]


def test_a_second_import_starts_nothing(world: World) -> None:
    again = "import importlib, torch\nimportlib.reload(torch)\n"
    assert world.run(again) == ["torch", "start True", "torch"]


@pytest.mark.parametrize("text", ["1 / 0\n", "def start():\n    1 / 0\n", "import nowhere\n"])
def test_errors_of_the_probe_stay_in_it(world: World, text: str) -> None:
    world.write(world.inject / "gpulift_probe.py", text)
    assert world.run(A_B) == ["a", "torch", "b"]


def test_torch_that_is_not_there(world: World) -> None:
    (world.user / "torch" / "__init__.py").unlink()
    (world.user / "torch").rmdir()
    world.write(world.user / "script.py", "import torch\n")
    ended = world.ended(sys._base_executable)  # type: ignore[attr-defined]
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


def test_torch_that_fails_may_be_tried_again(world: World) -> None:
    fails = 'import os\nif "FAIL" in os.environ:\n    raise ImportError("libcudart")\n'
    world.write(world.user / "torch" / "__init__.py", fails + "whole = True\n")
    twice = (
        "import os\nos.environ['FAIL'] = ''\n"
        "try:\n    import torch\nexcept ImportError as error:\n    print(error)\n"
        "del os.environ['FAIL']\nimport torch\n"
    )
    assert world.run(twice) == ["libcudart", "start True"]


def test_processes_of_the_script(world: World) -> None:
    spawns = (
        "import multiprocessing, subprocess, sys\n"
        "def work():\n    import torch\n"
        'if __name__ == "__main__":\n'
        '    process = multiprocessing.get_context("spawn").Process(target=work)\n'
        "    process.start()\n    process.join()\n"
        '    subprocess.run([sys.executable, "-c", "import torch"])\n'
    )
    assert world.run(spawns) == ["torch", "start True"] * 2


def test_the_sitecustomize_behind(world: World) -> None:
    own = 'import sys\nvalue = 3\nprint("own", "torch" in sys.modules)\n'
    world.write(world.user / "sitecustomize.py", own)
    asks = "import sitecustomize, torch\nprint(sitecustomize.value)\n"
    assert world.run(asks) == ["own False", "torch", "start True", "3"]


def test_the_sitecustomize_behind_that_fails(world: World) -> None:
    world.write(world.user / "sitecustomize.py", "1 / 0\n")
    world.write(world.user / "script.py", "import torch\n")
    ended = world.ended()
    assert ended.stdout.splitlines() == ["torch", "start True"]
    assert "Error in sitecustomize" in ended.stderr


def test_one_behind_that_has_it_run_again(world: World) -> None:
    again = (
        "import os, sys\nhere = os.path.dirname(__file__)\n"
        "sys.path = [one for one in sys.path if one != here]\n"
        'del sys.modules["sitecustomize"]\nimport sitecustomize\nsys.path.append(here)\n'
    )
    world.write(world.user / "sitecustomize.py", again)
    assert world.run(A_B) == ["a", "torch", "start True", "b"]


def test_a_virtual_environment_with_its_own(world: World, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    world.write(site / "sitecustomize.py", 'print("own")\n')
    python = str(environment / "bin" / "python")
    assert world.run(A_B, python) == ["own", "a", "torch", "start True", "b"]
