"""What tests of techniques share: the script, a disk, an arm run on several ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
WORKER = ROOT / "core" / "python"
sys.path[:0] = [str(WORKER), str(WORKER / "testing"), str(ROOT / "workloads" / "python")]

import rank_group  # noqa: E402
import technique_script  # noqa: E402
from gpulift_work import samples  # noqa: E402
from gpulift_worker import scratch, seed_generators  # noqa: E402

Hello = dict[str, Any]
Hellos = Callable[[Path, str, Mapping[str, "int | str"]], list[Hello]]


def pytest_configure(config: pytest.Config) -> None:
    """Marks that tests bear."""
    config.addinivalue_line(
        "markers",
        "many_ranks: on 4 and 8 ranks, which one technique alone shows for all; the others take 2",
    )


@pytest.fixture(autouse=True)
def numbers_of_a_seed() -> None:
    """Arms draw theirs from generators that the worker seeds."""
    seed_generators(7)


@pytest.fixture(name="technique", scope="module")
def script_beside(request: pytest.FixtureRequest) -> ModuleType:
    """technique: the script NAME.py beside NAME_test.py, as a module."""
    pytest.importorskip("torch")
    return technique_script.load(str(request.path))


@pytest.fixture(name="trainings")
def trainings_that_arms_make(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """trainings: those that arms of the script made."""
    kept: list[Any] = []
    made = technique.Training

    def make_and_keep(*given: Any, **said: Any) -> Any:
        kept.append(made(*given, **said))
        return kept[-1]

    monkeypatch.setattr(technique, "Training", make_and_keep)
    return kept


@pytest.fixture(name="no_settings")
def variables_of_arms_unset(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """no_settings: this process has none of the variables that arms of the script are given."""
    for variables in technique_script.manifest(str(request.path))["environment"].values():
        for name in variables:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(name="idle_graphs")
def graphs_that_do_nothing(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """idle_graphs: steps are recorded as on a GPU, and replays do nothing."""
    import torch
    from gpulift_work import kernels, training

    genuine = training.recorded

    def recorded(step: Any, _device: Any, stream: Any = None) -> Any:
        on_a_gpu: Any = SimpleNamespace(type="cuda")
        return genuine(step, on_a_gpu, stream)

    for place in (technique, kernels):
        monkeypatch.setattr(place, "recorded", recorded, raising=False)
    graph = SimpleNamespace(replay=lambda: None)
    for name, fake in {
        "CUDAGraph": lambda: graph,
        "Stream": lambda _device: None,
        "graph": lambda _graph, stream: nullcontext(stream),
        "stream": nullcontext,
        "synchronize": lambda _device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)


class Stream:
    """All that it was given has run."""

    def wait_stream(self, other: Any) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self) -> Stream:
        return self


@pytest.fixture(name="on_a_gpu")
def host_that_passes_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """on_a_gpu: to torchao's optimizer, whose copies are then beside the weights."""
    import torch

    module = pytest.importorskip("torchao.optim.cpu_offload")
    monkeypatch.setattr(module, "get_available_devices", lambda: ["cpu", "cuda"])
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    empty_like = torch.empty_like
    monkeypatch.setattr(
        torch, "empty_like", lambda one, pin_memory=False, **said: empty_like(one, **said)
    )


@pytest.fixture(name="hellos_of_ranks")
def ranks_of_an_arm() -> Hellos:
    """hellos_of_ranks(script, arm, point): what its ranks, or two, say after the arm's check."""

    def hellos(script: Path, arm: str, point: Mapping[str, int | str]) -> list[Hello]:
        with rank_group.RankGroup(script, ranks=int(point.get("ranks", 2))) as group:
            return group.hello(arm, point)

    return hellos


@pytest.fixture(name="altered")
def altered_script(tmp_path: Path) -> Callable[[Path, str], Path]:
    """altered(script, code): a script that runs the code over the module `technique` first."""
    return lambda script, code: rank_group.altered(tmp_path, script, code)


@pytest.fixture(name="files", scope="session")
def few_small_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Sixteen files, of which twelve are different."""
    pytest.importorskip("torchvision")
    from gpulift_work.feeding import stored

    return stored(tmp_path_factory.mktemp("case"), 16, 7, scale=0.25)


@pytest.fixture(name="two_cores")
def script_on_two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What keep_to() takes away is given back."""
    pytest.importorskip("torchvision")
    from gpulift_work import feeding

    monkeypatch.setattr(feeding, "cores", lambda: 2)
    allowed = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, allowed)


@pytest.fixture(name="disk")
def scratch_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A case's scratch folder, on what passes for a disk."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(samples, "disk_facts", lambda _: {"in_memory": False})
    scratch.cache_clear()
    yield tmp_path / "case"
    scratch.cache_clear()
