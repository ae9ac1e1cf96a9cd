"""How loaders and models of a script are made in a process that differs in that."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import constructed  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    IterableDataset,
    get_worker_info,
)

pytestmark = [pytest.mark.usefixtures("unchanged", "undone"), pytest.mark.world]

ITEMS = range(12)
WORKERS = {"num_workers": 2, "prefetch_factor": 3}


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is changed for a whole process is changed for the test alone."""
    for owner, name in (
        (DataLoader, "__init__"),
        (torch.Tensor, "to"),
        (torch.Tensor, "cuda"),
        (nn.Module, "__call__"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as this module asks."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def change(**loader: Any) -> None:
    constructed.change_loaders({"loader": loader})


def test_positional_and_named_options_are_changed(with_cuda: None) -> None:
    change(**WORKERS, pin_memory=True)
    for loader in (
        DataLoader(ITEMS, 4),
        DataLoader(ITEMS, 4, False, None, None, 1),
        DataLoader(dataset=ITEMS, batch_size=4, num_workers=1, prefetch_factor=8),
    ):
        options = (loader.num_workers, loader.prefetch_factor, loader.pin_memory)
        assert options == (2, 3, True)
        assert loader.batch_size == 4


def test_options_that_the_plan_leaves_out_stay() -> None:
    change(prefetch_factor=3)
    loader = DataLoader(ITEMS, num_workers=1, persistent_workers=True, timeout=9)
    assert (loader.num_workers, loader.prefetch_factor) == (1, 3)
    assert (loader.persistent_workers, loader.timeout) == (True, 9)
    assert DataLoader(ITEMS).prefetch_factor is None


@pytest.mark.parametrize("plan", [{}, {"loader": {}}])
def test_nothing_is_changed_without_a_plan(plan: dict[str, Any]) -> None:
    construct, to = DataLoader.__init__, torch.Tensor.to
    constructed.change_loaders(plan)
    constructed.copy_unwaited(plan)
    assert (DataLoader.__init__, torch.Tensor.to) == (construct, to)


@pytest.mark.parametrize("asked", [True, False])
def test_cudnn_searches_from_the_first_convolution_on(
    monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    constructed.search_algorithms({"cudnn_search": asked})
    assert torch.backends.cudnn.benchmark == asked


def test_what_a_loader_without_workers_must_not_have_is_dropped() -> None:
    change(num_workers=0)
    loader = DataLoader(
        ITEMS,
        num_workers=2,
        prefetch_factor=4,
        persistent_workers=True,
        timeout=9,
        multiprocessing_context="spawn",
    )
    assert len(list(loader)) == 12


def test_pinning_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    change(num_workers=1, pin_memory=True)
    loader = DataLoader(ITEMS)
    assert (loader.num_workers, loader.pin_memory) == (1, False)


class Shard(DataLoader):  # type: ignore[misc]
    """As of accelerate: made of what another loader has."""

    def __init__(self, dataset: Any, device: str, **options: Any) -> None:
        self.device = device
        super().__init__(dataset, **options)


def test_loaders_of_other_classes_are_changed() -> None:
    constructed.change_loaders({"loader": WORKERS, "batch_factor": 2})
    made = DataLoader(ITEMS, 3)
    shard = Shard(made.dataset, "cpu", batch_sampler=made.batch_sampler)
    assert (shard.num_workers, shard.prefetch_factor, shard.device) == (2, 3, "cpu")
    assert [len(batch) for batch in shard.batch_sampler] == [6, 6]
    assert Shard(ITEMS, "cpu", batch_size=3).batch_size == 3


class Counted(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(ITEMS)


class Dealt(Counted):
    def _share(self) -> slice:
        info = get_worker_info()
        return slice(info.id, None, info.num_workers) if info else slice(None)

    def __iter__(self) -> Iterator[int]:
        return iter(ITEMS[self._share()])


@pytest.mark.parametrize(
    ("dataset", "options", "workers"),
    [(Counted(), {}, 0), (Counted(), {"worker_init_fn": print}, 2), (Dealt(), {}, 2)],
)
def test_workers_of_iterable_datasets(dataset: Any, options: Any, workers: int) -> None:
    """Where each worker would give all items, there are none."""
    constructed.change_loaders({"loader": WORKERS, "batch_factor": 2})
    loader = DataLoader(dataset, 4, **options)
    assert (loader.num_workers, loader.batch_size) == (workers, 8)


def test_the_batch_is_changed_where_its_size_was_given() -> None:
    constructed.change_loaders({"batch_factor": 2})
    sampler = BatchSampler(ITEMS, 3, False)
    assert DataLoader(ITEMS, 3, drop_last=True).batch_size == 6
    assert DataLoader(ITEMS, batch_size=3, sampler=ITEMS).batch_size == 6
    assert DataLoader(ITEMS).batch_size == 1
    assert DataLoader(ITEMS, batch_size=None).batch_size is None
    for _ in range(2):
        assert DataLoader(ITEMS, batch_sampler=sampler).batch_sampler is sampler
        assert sampler.batch_size == 6
    assert (
        DataLoader(ITEMS, batch_sampler=OwnBatches(ITEMS, 3, False)).batch_sampler.batch_size == 3
    )


def test_a_loader_made_of_another_has_its_batch() -> None:
    """As libraries make a rank's: of an iterable dataset, or of parts of each batch."""
    constructed.change_loaders({"batch_factor": 2})
    size = DataLoader(Counted(), 4).batch_size
    assert DataLoader(Counted(), size).batch_size == 8
    assert DataLoader(ITEMS, size // 2).batch_size == 4
    assert (
        DataLoader(ITEMS, batch_sampler=BatchSampler(ITEMS, size, False)).batch_sampler.batch_size
        == 8
    )


class OwnBatches(BatchSampler):  # type: ignore[misc]
    """Of somebody's own."""


class OfRank:
    """As accelerate's of one rank."""

    def __init__(self, batches: Any) -> None:
        self.batch_sampler, self.batch_size = batches, batches.batch_size


@pytest.mark.parametrize(
    ("options", "sampled"),
    [
        ({"batch_size": 3}, False),
        ({"batch_size": None}, True),
        ({"batch_sampler": BatchSampler(ITEMS, 3, False)}, False),
        ({"batch_sampler": OfRank(BatchSampler(ITEMS, 3, False))}, False),
        ({"batch_sampler": OwnBatches(ITEMS, 3, False)}, True),
        ({"batch_sampler": [[0], [1, 2]]}, True),
    ],
)
def test_whose_batches_a_script_makes_itself(options: dict[str, Any], sampled: bool) -> None:
    assert constructed.is_sampled(DataLoader(ITEMS, **options)) is sampled


def test_a_batch_keeps_one_item() -> None:
    constructed.change_loaders({"batch_factor": 0.125})
    assert DataLoader(ITEMS, 3).batch_size == 1


def test_what_a_script_does_wrong_stays_its_error() -> None:
    signature = inspect.signature(DataLoader)
    change(**WORKERS)
    assert inspect.signature(DataLoader) == signature
    with pytest.raises(TypeError, match="batches"):
        DataLoader(ITEMS, batches=4)
    unpicklable = [lambda: 1]
    loader = DataLoader(unpicklable, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(Exception, match=r"[Pp]ickle"):
        next(iter(loader))


class Copies:
    """Notes how tensors are copied, in a process where those of one element are pinned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[Any] = []
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.numel() == 1)
        for name in ("to", "cuda"):
            monkeypatch.setattr(torch.Tensor, name, self.copying())
        constructed.copy_unwaited({"loader": {"pin_memory": True}})

    def copying(self) -> Callable[..., Any]:
        """In place of torch's."""

        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self.said.append(kwargs.get("non_blocking", args[-1] if args else None))
            return tensor

        return copy


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    return Copies(monkeypatch)


def test_copies_from_pinned_memory_do_not_wait(copies: Copies) -> None:
    pinned = torch.zeros(1)
    pinned.to("cuda:0")
    pinned.to(device=0)
    pinned.to(torch.empty(0), torch.half)
    pinned.cuda()
    pinned.cuda(0)
    assert copies.said == [True] * 5


def test_what_the_script_says_is_kept(copies: Copies) -> None:
    pinned = torch.zeros(1)
    pinned.to("cuda:0", non_blocking=False)
    pinned.to("cuda:0", torch.half, False)
    pinned.to(torch.half, False)
    pinned.cuda(0, False)
    pinned.cuda(non_blocking=False)
    assert copies.said == [False] * 5


def test_other_copies_wait_as_before(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.zeros(2).to("cuda:0")
    torch.zeros(1, device="meta").to("cuda:0")
    nn.Parameter(torch.zeros(1)).cuda(0)
    nn.Linear(1, 1, bias=False).to("cpu")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    torch.zeros(1).to("cuda:0")
    assert copies.said == ["cuda:0", "cuda:0", 0, False, "cuda:0"]


def test_compiled_functions_copy_without_a_break() -> None:
    constructed.copy_unwaited({"loader": {"pin_memory": True}})

    def half(tensor: Any) -> Any:
        return tensor.to(torch.float64) / 2

    torch._dynamo.reset()
    compiled = torch.compile(half, backend="aot_eager", fullgraph=True)
    tensor = torch.ones(2, requires_grad=True)
    compiled(tensor).sum().backward()
    assert compiled(tensor).tolist() == [0.5, 0.5]
    assert tensor.grad.tolist() == [0.5, 0.5]


def trained(module: Any, kind: Any = torch.optim.AdamW, **options: Any) -> Any:
    """Its optimizer behind one step."""
    optimizer = kind([one for one in module.parameters() if one.requires_grad], **options)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer


def is_channels_last(tensor: Any) -> bool:
    return bool(tensor.is_contiguous(memory_format=torch.channels_last))


def to_channels_last(optimizer: Any) -> None:
    constructed.change_first_step({"channels_last": True}, iter([optimizer]))


def test_weights_of_convolutions_and_what_is_known_of_them_become_channels_last() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    optimizer = trained(module)
    weight = module[0].weight
    before, state = weight.detach().clone(), dict(optimizer.state[weight])
    linear = dict(optimizer.state[module[2].weight])
    to_channels_last(optimizer)
    after = optimizer.state[weight]
    for tensor in (weight, weight.grad, after["exp_avg"], after["exp_avg_sq"]):
        assert is_channels_last(tensor)
    assert module[0].weight is weight
    assert torch.equal(weight, before)
    assert after["step"] is state["step"]
    assert torch.equal(after["exp_avg"], state["exp_avg"])
    assert all(optimizer.state[module[2].weight][name] is linear[name] for name in linear)
    # And the script's batches take the format of the first.
    assert is_channels_last(module[0](torch.ones(2, 3, 4, 4)))
    optimizer.step()


def test_weights_that_are_not_trained_become_channels_last_too() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 4, 3))
    module[0].requires_grad_(False)
    optimizer = trained(module, torch.optim.SGD)
    to_channels_last(optimizer)
    assert is_channels_last(module[0].weight)
    assert is_channels_last(module[1].weight)
    assert all(not state for state in optimizer.state.values())


class Holder(nn.Module):  # type: ignore[misc]
    """A LightningModule of which another method than forward is called."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.frozen = Model(), Model().requires_grad_(False)

    def training_step(self) -> None:
        self.frozen(torch.ones(1, 2))
        self.model(torch.ones(1, 2))


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(2, 2)

    def forward(self, values: Any) -> Any:
        return self.part(values)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Modules that were compiled, in their order."""
    modules: list[Any] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module: modules.append(module))
    return modules


def compile_at_next_call(*optimizers: Any) -> None:
    constructed.change_first_step({"compile": True}, optimizers)


def test_the_modules_that_are_called_are_compiled(compiled: list[Any]) -> None:
    call = nn.Module.__call__
    holder, other = Holder(), Model()
    compile_at_next_call(trained(holder), trained(other))
    assert compiled == []
    for _ in range(2):
        holder.training_step()
        other(torch.ones(1, 2))
    assert compiled == [holder.model, other]
    assert nn.Module.__call__ is call


def test_parameters_outside_of_called_modules_wait_in_vain(compiled: list[Any]) -> None:
    holder = Holder()
    compile_at_next_call(trained(holder), torch.optim.SGD([nn.Parameter(torch.ones(1))]))
    for _ in range(2):
        holder.training_step()
    assert compiled == [holder.model]


def test_a_module_that_compiles_already_is_left_alone(compiled: list[Any]) -> None:
    wrapped, in_place, in_part = Model(), Model(), Model()
    backend = {"backend": "eager"}
    wrapper = torch.compile(wrapped, **backend)
    for module in (in_place, in_part.part):
        module._compiled_call_impl = torch.compile(module._call_impl, **backend)
    compile_at_next_call(*map(trained, (wrapped, in_place, in_part)))
    for module in (wrapper, in_place, in_part):
        module(torch.ones(1, 2))
    assert compiled == []


def test_a_compiled_function_is_left_alone(compiled: list[Any]) -> None:
    model = Model()
    compile_at_next_call(trained(model))
    torch.compile(lambda values: model(values), backend="eager", fullgraph=True)(torch.ones(1, 2))
    assert compiled == []


def test_a_whole_model_is_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    module_compile = nn.Module.compile
    monkeypatch.setattr(
        nn.Module, "compile", lambda module: module_compile(module, backend=backend)
    )
    torch._dynamo.reset()
    model = Model()
    compile_at_next_call(trained(model))
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    assert len(graphs) == 1


MUCH = 150_000_000  # bytes, beside what children that earlier tests left come to hold
BUSY = "import sys; held = bytearray(b'x') * 300_000_000; print(1, flush=True); sys.stdin.read()"


def child(text: str) -> subprocess.Popen[bytes]:
    started = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    return started


def test_children_of_children_count_until_they_end() -> None:
    before = constructed.host_bytes()
    assert before > 1_000_000
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    with child(parent) as started:
        assert constructed.host_bytes() > before + MUCH
        started.kill()
        zombie = constructed.host_bytes()
    assert 0 < zombie < before + MUCH


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which this process has one child."""
    monkeypatch.setattr(constructed, "_PROCESSES", tmp_path)
    monkeypatch.setattr(constructed.os, "getpid", lambda: 7)
    for process, parent in ((7, 1), (8, 7), (9, 1)):
        folder = tmp_path / str(process)
        folder.mkdir()
        (folder / "stat").write_text(f"{process} (a ) b) S {parent} 1 1")
        (folder / "statm").write_text("900 2 1")
        (folder / "smaps_rollup").write_text("Rss: 40 kB\nPss: 30 kB\nPss_Anon: 20 kB\n")
    return tmp_path


def test_what_is_shared_counts_once(processes: Path) -> None:
    assert constructed.host_bytes() == 2 * 30 * 1024


def test_older_kernels_tell_what_each_holds(processes: Path) -> None:
    (processes / "8" / "smaps_rollup").unlink()
    page = constructed.os.sysconf("SC_PAGE_SIZE")
    assert constructed.host_bytes() == 30 * 1024 + 2 * page


def test_a_child_may_end_meanwhile(processes: Path) -> None:
    for name in ("smaps_rollup", "statm"):
        (processes / "8" / name).unlink()
    assert constructed.host_bytes() == 30 * 1024
    (processes / "8" / "stat").unlink()
    assert constructed.host_bytes() == 30 * 1024


def test_without_a_list_of_processes_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constructed, "_PROCESSES", tmp_path / "none")
    assert constructed.host_bytes() == 0


@pytest.mark.parametrize(
    ("plan", "loader", "why"),
    [
        ({"loader": WORKERS}, DataLoader(ITEMS, 4, num_workers=2, prefetch_factor=3), ""),
        ({"loader": WORKERS}, DataLoader(Counted(), 4), "loader of the training has num_workers=0"),
        ({"loader": WORKERS}, None, "no DataLoader"),
        ({"batch_factor": 2, "batch": 8}, DataLoader(ITEMS, 8), ""),
        ({"batch_factor": 2, "batch": 8}, DataLoader(ITEMS, 4), "batches have 4 items"),
        ({"batch_factor": 2, "batch": 8}, None, "no DataLoader"),
        ({"channels_last": True}, None, "no weight has four dimensions"),
        ({"compile": True}, None, "no module that the script calls could be compiled"),
        ({"environment": {"MINE": "1"}}, None, ""),
        ({"environment": {"MINE": "2"}}, None, "the script, or what starts it, sets MINE itself"),
        ({"arguments": ["--width", "512"]}, None, ""),
        ({"arguments": ["--width=512"]}, None, ""),
        ({"arguments": ["--depth=77"]}, None, ""),  # a launcher made a variable of it
        ({"arguments": ["--width", "1024"]}, None, "the process that trains does not get it"),
    ],
)
def test_what_did_not_take(
    monkeypatch: pytest.MonkeyPatch, plan: dict[str, Any], loader: Any, why: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--width", "512"])
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("THEIR_DEPTH", "77")
    monkeypatch.setenv("GPULIFT_ADVISE", str(plan))
    optimizers = {1: torch.optim.SGD(nn.Linear(2, 2).parameters())}
    anchors = SimpleNamespace(source=loader, optimizers=optimizers)
    told = constructed.unset(plan, anchors, compiled=False)
    assert told if why else not told
    assert why in told


def test_a_change_that_took_is_set() -> None:
    convolution = {1: torch.optim.SGD(nn.Conv2d(1, 1, 3).parameters())}
    anchors = SimpleNamespace(source=None, optimizers=convolution)
    assert constructed.unset({"channels_last": True, "compile": True}, anchors, compiled=True) == ""
