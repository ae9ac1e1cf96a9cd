"""What is particular to the Python arms that train: sizes as in C++, checks that find errors."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SETTING = """
import json, torch
from gpulift_work import training
from gpulift_worker import Skip
host = training.device_of(None)
training.set_up(host)
"""

# A small model of both frameworks from the same weights on the same batch, in FP32.
PARITY = """
import numpy as np
from gpulift_work import jax_training
from gpulift_work.jax_models import Lstm, Resnet
from jax import device_put
STEPS = 5
def to_jax(name, one):
    array = one.detach().numpy().copy()
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    return array.T if array.ndim == 2 and name != "embedding.weight" else array
def compare(name, model, other, given, target):
    jax_training.TWINS["small"] = jax_training.Twin(
        other, bf16=False, rule=jax_training.TWINS[name].rule
    )
    found = jax_training.Training("small", jax_training.device_of(None), 1, jit=True)
    weights = {key: to_jax(key, one) for key, one in model.named_parameters()}
    shapes = {key: one.shape for key, one in found.state["weights"].items()}
    assert {key: one.shape for key, one in weights.items()} == shapes
    found.state["weights"] = device_put(weights, found.device)
    image = given.dim() == 4
    found.batch = device_put(
        ((given.permute(0, 2, 3, 1) if image else given).numpy(), target.numpy()), found.device
    )
    found.train_until(STEPS)
    expected, loss_of = [], training.Loss(model)
    optimizer = training.make_optimizer(name, list(model.parameters()))
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(given, target)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    buffers = {key: one for key, one in model.named_buffers() if "running" in key}
    assert buffers.keys() == found.state["buffers"].keys()
    apart = [
        float(np.abs(one.numpy() - found.state["buffers"][key]).max() / one.abs().max())
        for key, one in buffers.items()
    ]
    print(json.dumps([found.losses, expected, apart]))
torch.manual_seed(1)
"""
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def printed(code: str, setting: str = SETTING, **environment: str) -> Any:
    """The JSON that the code prints in a process of its own, where torch belongs."""
    folders = ("core/python", "workloads/python", "benches/compile", "benches/framework")
    paths = os.pathsep.join(str(ROOT / folder) for folder in folders)
    done = subprocess.run(
        [sys.executable, "-c", setting + code],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_trains_at_the_sizes_of_the_cpp_arms() -> None:
    rows = re.findall(
        r'\{"(\w+)",\s*\{\.batch_size = (\d+),\s+\.precision = Precision::k(\w+)(.*?)\}',
        (ROOT / "workloads" / "torch" / "twin.cpp").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    in_cpp = {
        name: [
            int(batch),
            precision == "Bf16",
            "channels_last = true" in rest,
            "".join(re.findall(r'model = "(\w+)"', rest)),
        ]
        for name, batch, precision, rest in rows
    }
    in_python = printed(
        "print(json.dumps({name: [one.batch, one.bf16, one.channels_last, one.model]"
        " for name, one in training.TWINS.items()}))"
    )
    alone = {"gpt2_large", "gpt2_unpadded", "gpt_baby", "gpt_toy_unpadded", "llama_248k"}
    alone |= {"resnet50_256", "vit_l16", "vit_toy", "moe_8e", "moe_64e", "moe_toy"}
    alone |= {"llama_3b", "llama_8b_slice", "gpt2_bytes", "gpt_bytes_toy", "llama_bytes"}
    alone |= {"llama_1b_untied", "llama_toy_untied"}
    in_python = {name: twin for name, twin in in_python.items() if name not in alone}
    assert in_python == in_cpp


@needs_jax
def test_jax_trains_at_the_sizes_of_pytorch() -> None:
    in_torch, in_jax = printed("""
from gpulift_work import jax_training
print(json.dumps([
    {name: [training.TWINS[name].batch, training.TWINS[name].bf16] for name in jax_training.TWINS},
    {name: [one.model.batch, one.bf16] for name, one in jax_training.TWINS.items()},
]))
""")
    assert in_jax == in_torch


@needs_jax
def test_an_lstm_in_jax_takes_the_steps_of_pytorch() -> None:
    code = """
tokens = torch.randint(50, (4, 17))
compare(
    "lstm",
    training.Lstm(50, 32),
    Lstm(4, layers=2, width=32, tokens=16, vocabulary=50),
    tokens[:, :-1],
    tokens[:, 1:],
)
"""
    found, expected, _ = printed(PARITY + code)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[-1] < found[0]


@needs_jax
@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)
def test_a_resnet_in_jax_takes_the_steps_of_pytorch() -> None:
    # The second block of the first stage has no convolution beside its own. Blocks begin as the
    # identity, as in the twins: else the gradient is so steep that rounding shows in two steps.
    code = """
from torchvision.models.resnet import Bottleneck, ResNet
model = ResNet(Bottleneck, [2, 1, 1, 1], num_classes=10, zero_init_residual=True)
compare(
    "resnet50",
    model,
    Resnet(8, blocks=(2, 1, 1, 1), pixels=64, classes=10),
    torch.randn(8, 3, 64, 64),
    torch.randint(10, (8,)),
)
"""
    found, expected, buffers_apart = printed(PARITY + code)
    # Relative to the first, as arms are checked: by rounding, the small last ones differ more.
    assert found == pytest.approx(expected, abs=1e-4 * expected[0])
    assert found[-1] < 0.5 * found[0]
    assert max(buffers_apart) < 1e-3


@needs_jax
def test_jax_in_bf16_follows_fp32_but_not_to_the_last_digit() -> None:
    code = """
from gpulift_work.jax_training import *
TWINS["lstm"] = Twin(Lstm(4, layers=2, width=32, tokens=16, vocabulary=50), True, AdamW())
def losses(plain):
    found = Training("lstm", device_of(None), 1, jit=True, plain=plain)
    found.train_until(5)
    return found.losses
print(largest_deviation(losses(False), losses(True)))
"""
    assert 1e-6 < printed(code, setting="") < 0.01


@needs_jax
def test_resnet50_in_jax_is_that_of_torchvision_and_stays_in_fp32_between_steps() -> None:
    code = """
import json
from gpulift_work.jax_training import *
twin = TWINS["resnet50"]
generator = np.random.default_rng(1)
weights = twin.model.make_weights(generator)
buffers = twin.model.make_buffers()
state = {"weights": weights, "buffers": buffers, "moments": twin.rule.start(weights)}
batch = twin.model.make_batch(generator)
def types(arrays): return jax.tree.map(lambda one: [str(one.dtype), *one.shape], arrays)
loss, after = jax.eval_shape(partial(train_step, twin, True), state, *batch)
parameters = sum(one.size for one in weights.values())
print(json.dumps([parameters, types(loss), types(after) == types(state)]))
"""
    assert printed(code, setting="") == [25_557_032, ["float32"], True]


def test_gpt2_has_as_many_parameters_as_in_cpp() -> None:
    code = """
with torch.device("meta"):
    model = training.make_model("gpt2")
print(sum(one.numel() for one in model.parameters()))
"""
    assert printed(code) == 124_475_904


def test_work_of_a_gpt_is_what_torch_counts_but_for_masked_attention() -> None:
    counted, told, masked = printed("""
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
size = training.GPT_SIZES["gpt_toy"]
loss = training.Loss(training.Gpt(size))
with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
    loss(*training.make_batch("gpt_toy", 1)).backward()
masked = 6 * size.layers * size.width * size.tokens**2
print(json.dumps([counter.get_total_flops(), size.flops_of_row(), masked]))
""")
    assert counted == told + masked


def test_losses_that_are_no_numbers_deviate_by_no_number() -> None:
    code = "print(json.dumps(str(training.largest_deviation([float('nan')], [1.0]))))"
    assert printed(code) == "nan"


def test_the_softmax_of_a_loss_is_in_fp32_on_a_gpu_too() -> None:
    # Fake tensors go through CUDA's own rules of autocast without a GPU; the host's are others.
    code = """
from torch._subclasses.fake_tensor import FakeTensorMode
def types_through(loss):
    found, node = [], loss.grad_fn
    while node is not None:
        found.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return found
with FakeTensorMode(allow_non_fake_inputs=True):
    logits = torch.empty(8, 4, 100, device="cuda", dtype=torch.bfloat16).requires_grad_()
    target = torch.empty(8, 4, device="cuda", dtype=torch.int64)
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    ours = training.Loss(torch.nn.Identity())(logits, target)
    plain = torch.nn.functional.cross_entropy(logits.reshape(-1, 100), target.reshape(-1))
    torch.set_autocast_enabled("cuda", False)
print(json.dumps([types_through(ours), types_through(plain)]))
"""
    ours, plain = printed(code)
    softmax = ours.index("LogSoftmaxBackward0")
    assert ours[softmax + 1] == "ToCopyBackward0"
    assert "ToCopyBackward0" not in plain[plain.index("LogSoftmaxBackward0") :]


def test_what_replayed_graphs_use_counts_as_allocated() -> None:
    code = """
segments = [
    {"segment_pool_id": (0, 0), "total_size": 100, "allocated_size": 60},
    {"segment_pool_id": (0, 1), "total_size": 50, "allocated_size": 20},
    {"segment_pool_id": (0, 2), "total_size": 8, "allocated_size": 8},
]
print(training.bytes_of_replays(segments))
"""
    assert printed(code) == 30


def test_without_a_compiler_it_is_skipped_with_a_remedy() -> None:
    code = """
try:
    training.require_compiler(host)
except Skip as skip:
    print(json.dumps([str(skip), skip.remedy]))
"""
    reason, remedy = printed(code, CXX="no-such-compiler")
    assert reason == "torch.compile finds no compiler called no-such-compiler"
    assert "CXX" in remedy


def test_where_nothing_that_was_compiled_can_be_loaded_it_is_skipped_with_a_remedy() -> None:
    code = """
import os
from types import SimpleNamespace
os.statvfs = lambda folder: SimpleNamespace(f_flag=os.ST_NOEXEC)
try:
    training.use_cache_of_run("toy", cold=True)
except Skip as skip:
    print(json.dumps([str(skip), skip.remedy]))
"""
    reason, remedy = printed(code)
    assert reason.endswith("which is mounted noexec")
    assert "TMPDIR" in remedy


def test_a_later_launch_finds_what_the_first_of_its_run_compiled(tmp_path: Path) -> None:
    code = """
import os
from pathlib import Path
def found(cold):
    training.use_cache_of_run("toy", cold=cold)
    place = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    kept = [one.name for one in place.iterdir()]
    (place / "kernel").touch()
    return [str(place), kept]
print(json.dumps([found(cold) for cold in (True, False, True)]))
"""
    first, later, again = printed(code, GPULIFT_SCRATCH=str(tmp_path / "case"))
    place = str(tmp_path / "compiled-toy")
    assert (first, later, again) == ([place, []], [place, ["kernel"]], [place, []])
    (nowhere, none), *_ = printed(code, GPULIFT_SCRATCH="")
    assert (none, Path(nowhere).exists()) == ([], False)
