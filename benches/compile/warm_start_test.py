"""compile/warm_start: each arm starts from its own caches, and one that did not is found."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import training  # noqa: E402
from gpulift_worker import SPAWNED_MAIN, Arm, Failed, Skip  # noqa: E402

TOY = {"model": "llama_toy"}
LEFT = "compiled-warm_start-llama_toy"
FOLDER = "TORCHINDUCTOR_CACHE_DIR"
COLD = {"graph_misses_count": 2.0, "autograd_misses_count": 1.0}
FOUND = {"graph_hits_count": 2.0, "autograd_hits_count": 1.0}
NONE = dict.fromkeys([*COLD, *FOUND, "libraries_built_count"], 0.0)
# In place of another process that compiles.
LEAVES = """
import os
from pathlib import Path
Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "shipped").write_bytes(b"of another")
with open(__file__ + ".runs", "a") as runs:
    runs.write("once ")
"""


@pytest.fixture(name="run")
def run_that_compiles_in_no_time(
    technique: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The folder of a run. What is to be compiled writes a file into the cache, named after it."""
    folder, theirs = tmp_path / "run", tmp_path / "user"
    for one in (folder, theirs):
        one.mkdir()
    monkeypatch.setenv("GPULIFT_SCRATCH", str(folder / "case"))
    for variable in (FOLDER, "TRITON_CACHE_DIR"):
        monkeypatch.setenv(variable, str(theirs))

    def compile_nothing(work: Any, **_: Any) -> Any:
        Path(os.environ[FOLDER], getattr(work, "__name__", type(work).__name__)).touch()
        return work

    monkeypatch.setattr(torch, "compile", compile_nothing)
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"kernels", None))
    monkeypatch.setattr(technique, "keep_the_compiler_quiet", lambda: None)
    monkeypatch.setattr(technique, "require_state", lambda arm, found: None)
    monkeypatch.setattr(technique, "read_files", lambda *_: None)
    yield folder
    assert list(theirs.iterdir()) == []


@pytest.fixture(name="loaded")
def mega_caches_that_are_loaded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What torch was given to read, and read."""
    loaded: list[bytes] = []

    def load(content: bytes) -> bytes:
        loaded.append(content)
        return content

    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", load)
    return loaded


def replace_other(technique: ModuleType, patch: pytest.MonkeyPatch, file: Path, code: str) -> None:
    """The process that compiles ahead runs this code."""
    file.write_text(code, encoding="ascii")
    patch.setattr(technique, "SELF", [sys.executable, str(file)])


def files_in(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*")}


def test_each_arm_has_its_caches_and_all_train_alike(
    technique: ModuleType, run: Path, loaded: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "output_of", lambda _: "3.5 2.5")
    arms: dict[str, Arm] = {}
    for name in technique.TECHNIQUE["arms"]:
        arms[name] = technique.make(name, TOY, 7, None)
        arms[name].step()
        arms[name].rest()
    assert {one for one in files_in(run) if "/" in one} == {
        f"{LEFT}/{technique.SHIPPED}",
        f"{LEFT}/Loss",
        f"{LEFT}-mega_cache/Loss",
        f"{LEFT}-layers/_call_impl",
        f"{LEFT}-layers/of_logits",
    }
    assert loaded == [b"kernels"]
    first, *others = (arm.value() for arm in arms.values() if arm.value is not None)
    assert others == pytest.approx([first] * 4, rel=technique.FP32_TOLERANCE)
    took = {name: arm.metrics() for name, arm in arms.items()}
    assert all(one["time_to_step_10_s"] > 0 for one in took.values())
    assert took["mega_cache"]["carried_bytes"] == len(b"kernels")
    assert "carried_bytes" not in took["no_cache"]
    assert {one["graph_breaks"] for name, one in took.items() if name != "eager"} == {0}


def test_a_run_reads_files_once_before_its_first_start(
    technique: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(technique, "output_of", started.append)
    technique.read_files("llama_toy", 7, None)
    assert not started, "nobody knows whether it is the first"
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    for seed in (7, 8):
        technique.read_files("llama_toy", seed, 0)
    imports, eager = started
    assert imports[-1] == technique.IMPORTS
    assert eager == [*technique.SELF, "eager", "llama_toy", "7", "0"]


def test_a_process_that_cannot_read_files_fails_no_arm(
    technique: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    replace_other(technique, monkeypatch, tmp_path / "other.py", "import sys; sys.exit(1)")
    technique.read_files("llama_toy", 7, None)


def test_the_process_that_reads_files_trains(technique: ModuleType) -> None:
    technique.output_of([*technique.SELF, "eager", "llama_toy", "7", ""])  # raises where it fails
    with pytest.raises(RuntimeError, match="KeyError"):
        technique.output_of([*technique.SELF, "no such arm", "llama_toy", "7", ""])


def test_each_launch_starts_cold_and_finds_what_an_earlier_one_left(
    technique: ModuleType, run: Path
) -> None:
    technique.make("no_cache", TOY, 7, None)
    (run / LEFT / "stale").touch()
    technique.make("warm_folder", TOY, 8, None)
    assert (run / LEFT / "stale").exists()
    technique.make("no_cache", TOY, 8, None)
    assert not (run / LEFT / "stale").exists()


@pytest.mark.parametrize("has_folder", [True, False])
def test_where_nothing_was_left_another_process_compiles_ahead(
    technique: ModuleType,
    run: Path,
    loaded: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_folder: bool,
) -> None:
    if not has_folder:
        monkeypatch.delenv("GPULIFT_SCRATCH")
    replace_other(technique, monkeypatch, tmp_path / "other.py", LEAVES)
    for name in technique.WARM:
        technique.make(name, TOY, 7, None)
    assert loaded == [b"of another"]
    times = 1 if has_folder else 2  # nobody keeps it for the next arm
    assert (tmp_path / "other.py.runs").read_text() == times * "once "
    assert bool(files_in(run)) == has_folder


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit('/home/me/x: no space left')", "exit code 1: x: no space left"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9: nothing"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\n')", "left nothing: \ufffd"),
    ],
)
def test_another_process_that_leaves_nothing_is_one_reason(
    technique: ModuleType,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    reason: str,
) -> None:
    replace_other(technique, monkeypatch, tmp_path / "other.py", code)
    monkeypatch.setattr(technique, "LIMIT_S", 1 if "sleep" in code else 60)
    with pytest.raises(RuntimeError, match=reason) as failed:
        technique.make("mega_cache", TOY, 7, None)
    assert "\n" not in str(failed.value)


def test_the_script_is_that_process_and_says_why_it_compiled_nothing(
    technique: ModuleType, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    with pytest.raises(RuntimeError, match=r"did not start cold: .* had 0 graphs .* lacked 0"):
        technique.make("warm_folder", TOY, 7, None)


def test_keys_of_its_caches_are_a_workers(technique: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(
        "import sys\nimport torch\n"
        "def start_ahead():\n"
        "    modules = {**sys.modules, '__main__': None}\n"
        "    print(next(name for name, one in modules.items() if hasattr(one, 'torch')))\n"
    )
    assert technique.output_of([*technique.SELF[:-1], str(script)]) == SPAWNED_MAIN


@pytest.mark.parametrize(
    ("arm", "found", "reason"),
    [
        ("no_cache", COLD, None),
        ("layers", FOUND, "did not start cold: .* had 3 graphs that it asked for, and lacked 0"),
        ("warm_folder", FOUND, None),
        ("mega_cache", FOUND | {"libraries_built_count": 26.0}, None),
        ("mega_cache", FOUND | COLD, "did not start warm: .* had 3 graphs .* lacked 3"),
        ("mega_cache", {}, "did not start warm: .* had 0 graphs"),
        ("warm_folder", FOUND | {"libraries_built_count": 26.0}, "compilers built 26 libraries"),
    ],
)
def test_a_start_that_is_not_what_its_name_says_failed(
    technique: ModuleType, arm: str, found: dict[str, float], reason: str | None
) -> None:
    if reason is None:
        technique.require_state(arm, NONE | found)
        return
    with pytest.raises(Failed, match=reason):
        technique.require_state(arm, NONE | found)


def test_graphs_and_libraries_are_counted(
    technique: ModuleType, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo import utils

    monkeypatch.setattr(
        utils,
        "counters",
        {
            "inductor": utils.Counter(fxgraph_cache_miss=2, fxgraph_cache_bypass=1),
            "aot_autograd": utils.Counter(autograd_cache_hit=4),
        },
    )
    assert technique.counted() == {
        "graph_hits_count": 0,
        "graph_misses_count": 3,
        "autograd_hits_count": 4,
        "autograd_misses_count": 0,
        "triton_files_count": 0,
    }
    monkeypatch.setenv(FOLDER, str(run))
    (run / "ab").mkdir()
    (run / "ab" / "kernel.so").write_bytes(b"12345")
    (run / technique.SHIPPED).write_bytes(b"123")
    assert len(technique.libraries()) == 1
    assert technique.carried("warm_folder", None) == {"carried_bytes": 5}
    assert technique.carried("mega_cache", run / technique.SHIPPED) == {"carried_bytes": 3}


def test_a_mega_cache_that_torch_does_not_read_failed(
    technique: ModuleType, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    technique.make("no_cache", TOY, 7, None)
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", lambda _: None)
    with pytest.raises(Failed, match="does not read the mega-cache"):
        technique.make("mega_cache", TOY, 7, None)


def test_compiling_has_paid_when_steps_have_saved_what_it_took_more_than_eager(
    technique: ModuleType, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert technique.cost_of("no_cache", "gpt2", 20.0, 0.02) == {}, "eager is not known"
    monkeypatch.setattr(technique, "output_of", lambda _: "3.5 2.5")
    assert technique.cost_of("eager", "gpt2", 2.0, 0.03) == {
        "import_torch_s": 3.5,
        "import_compiler_s": 2.5,
    }
    cost = technique.cost_of("no_cache", "gpt2", 20.0, 0.02)
    assert cost["compiling_s"] == 18
    assert cost["break_even_steps"] == pytest.approx(1800)
    assert "break_even_steps" not in technique.cost_of("no_cache", "gpt2", 20.0, 0.03)
    assert technique.cost_of("no_cache", "llama_8b_slice", 20.0, 0.02) == {}


def test_what_modules_take_to_load_is_told_and_nothing_left(
    technique: ModuleType, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.delenv(FOLDER)
    assert all(found_s > 0 for found_s in technique.cost_of("eager", "gpt2", 2.0, 0.03).values())
    assert files_in(tmp_path / "tmp") == set()


def test_a_training_that_does_not_learn_has_another_value(
    technique: ModuleType, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = technique.Started("eager", "llama_toy", 7, None).mean_loss
    monkeypatch.setattr(training.Training, "update", lambda self: None)
    idle = technique.Started("eager", "llama_toy", 7, None).mean_loss
    assert abs(idle / genuine - 1) > 5 * technique.TECHNIQUE["check"]["tolerance"]


def test_a_folder_that_no_code_is_loaded_from_is_skipped(
    technique: ModuleType, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "is_noexec", lambda _: True)
    with pytest.raises(Skip, match="mounted noexec") as skipped:
        technique.make("warm_folder", TOY, 7, None)
    assert "TMPDIR" in skipped.value.remedy


def test_another_process_ends_with_this_one(technique: ModuleType, tmp_path: Path) -> None:
    number = tmp_path / "number"
    code = f"import os, time; open({str(number)!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(60)"
    arm = os.fork()
    if arm == 0:
        technique.output_of([sys.executable, "-c", code])
        os._exit(0)
    until_s = time.monotonic() + 30
    while not (number.exists() and number.read_text().endswith(" ")):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    os.kill(arm, signal.SIGKILL)
    os.waitpid(arm, 0)
    other = Path(f"/proc/{number.read_text().strip()}/cmdline")
    while other.exists() and other.read_bytes():  # one that nobody waited for has none
        assert time.monotonic() < until_s
        time.sleep(0.02)
