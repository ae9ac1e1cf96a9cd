"""Precision and compiler of models."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import forward  # noqa: E402
from torch import nn  # noqa: E402

from tests.advise.steps import CUDA, named, seen, state  # noqa: E402

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]


@pytest.fixture(name="native")
def _native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "has_native_bf16", lambda: True)


@pytest.mark.usefixtures("native")
def test_when_bf16_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state("bf16", seen()) == ("tried", "")
    assert state("bf16", seen(autocast=True)) == ("already on", "the script uses autocast")
    compiled = seen(autocast=True, compiled=True)
    assert state("bf16", compiled) == ("not applicable", "it is compiled with it")
    assert state("bf16", seen(modules=[nn.Linear(4, 4).half()]))[0] == "not applicable"
    assert "outside of compiled code" in state("bf16", seen(modules=[], optimizers=[]))[1]
    monkeypatch.setattr(forward, "has_native_bf16", lambda: False)
    assert state("bf16", seen()) == ("not applicable", "the processor has no BF16")


@pytest.mark.usefixtures("ampere")
def test_autocast_stays_where_fp32_may_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total_memory=100)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 20)
    for peak, told in ((40, "already on"), (41, "not applicable")):
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _, peak=peak: peak)
        assert state("bf16", seen(CUDA, autocast=True))[0] == told
        assert state("bf16", seen(CUDA))[0] == "tried"


@pytest.mark.parametrize(
    ("line", "native"),
    [
        ("flags : fpu avx512f avx512_bf16", True),
        ("flags : fpu amx_bf16", True),
        ("Features : fp asimd bf16", True),
        ("flags : fpu avx512f", False),
    ],
)
def test_processors_with_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, native: bool
) -> None:
    monkeypatch.setattr(forward, "_PROCESSOR", tmp_path / "cpuinfo")
    forward._PROCESSOR.write_text(line, encoding="utf-8")
    assert forward.has_native_bf16() is native


def test_where_the_processor_is_not_described_torch_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "_PROCESSOR", tmp_path / "none")
    assert forward.has_native_bf16() is torch.ops.mkldnn._is_mkldnn_bf16_supported()


class Watched(nn.Module):  # type: ignore[misc]
    """Two layers; keeps in which type the first computed, and gives what `end` makes of it."""

    def __init__(self, end: Any = lambda output: output) -> None:
        super().__init__()
        self.first, self.second, self.end = nn.Linear(4, 4), nn.Linear(4, 4), end
        self.dtypes: list[Any] = []

    def forward(self, rows: Any) -> Any:
        """See torch."""
        hidden = self.first(rows)
        self.dtypes.append(hidden.dtype)
        return self.end(self.second(hidden))


class Plain(nn.Module):  # type: ignore[misc]
    """A layer in a module of the script's own, which torch compiles in place, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, rows: Any) -> Any:
        """See torch."""
        return self.layer(rows)


ROWS = torch.ones(2, 4)


def test_bf16_computes_in_bf16_and_gives_fp32() -> None:
    module = Watched(lambda output: {"logits": output, "hidden": (output, None)})
    turned = named("bf16", seen(modules=[module]))
    turned.flip()
    output = module(ROWS)
    turned.back()
    module(ROWS)
    assert module.dtypes == [torch.bfloat16, torch.float32]
    assert output["logits"].dtype == output["hidden"][0].dtype == torch.float32


def test_a_model_with_its_own_loss_keeps_its_logits() -> None:
    module = Watched(lambda output: (output.mean(), output))
    turned = named("bf16", seen(modules=[module]))
    turned.flip()
    loss, logits = module(ROWS)
    turned.back()
    assert (loss.dtype, logits.dtype) == (torch.float32, torch.bfloat16)


def test_bf16_is_undone_when_the_window_raised() -> None:
    def fail(_: Any) -> None:
        raise ValueError("of the script")

    module = Watched(fail)
    turned = named("bf16", seen(modules=[module]))
    turned.flip()
    with pytest.raises(ValueError, match="of the script"):
        module(ROWS)
    turned.back()
    assert "forward" not in vars(module)


def test_autocast_of_the_script_is_turned_off_wherever_it_enters() -> None:
    inside, outside = Watched(), Watched()
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    inside.forward = autocast(inside.forward)  # type: ignore[method-assign]
    turned = named("bf16", seen(modules=[inside, outside], autocast=True))

    def step() -> list[Any]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outside(ROWS)
        inside(ROWS)
        return [outside.dtypes[-1], inside.dtypes[-1]]

    turned.flip()
    off = step()
    turned.back()
    assert off == [torch.float32] * 2
    assert step() == [torch.bfloat16] * 2


def test_autocast_that_was_entered_ahead_of_the_flip_is_off_in_modules() -> None:
    module = Watched()
    turned = named("bf16", seen(modules=[module], autocast=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        turned.flip()
        module(ROWS)
        turned.back()
        module(ROWS)
    assert module.dtypes == [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("in_place", [False, True])
def test_bf16_goes_around_compiled_modules(in_place: bool) -> None:
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    module = Plain()
    called = module
    if in_place:
        module.compile(backend=backend)
    else:
        called = torch.compile(module, backend=backend)
    called(ROWS)
    turned = named("bf16", seen(modules=[called]))
    for _ in range(2):
        turned.flip()
        called(ROWS)
        turned.back()
        called(ROWS)
    torch._dynamo.reset()
    assert len(graphs) == 2  # one in FP32, one in BF16


def test_compiled_code_runs_eagerly() -> None:
    calls = []

    def backend(graph: Any, _: Any) -> Any:
        def run(*inputs: Any) -> Any:
            calls.append(1)
            return graph(*inputs)

        return run

    torch._dynamo.reset()
    double = torch.compile(lambda rows: rows * 2, backend=backend)
    double(ROWS)
    watched = seen(compiled=True)
    assert state("compile", watched) == ("already on", "the script compiles")
    turned = named("compile", watched)
    turned.flip()
    double(ROWS)
    turned.back()
    assert len(calls) == 1
    double(ROWS)
    torch._dynamo.reset()
    assert len(calls) == 2


def test_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state("compile", seen()) == ("not applicable", "the script compiles nothing")
    monkeypatch.delattr(torch.compiler, "set_stance")
    assert state("compile", seen(compiled=True)) == ("not applicable", "it needs torch 2.6")
