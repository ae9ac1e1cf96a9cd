"""The C++ models give what torchvision's and transformers' give of the same weights and batch."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = pytest.mark.world

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("GPULIFT_BUILD", ROOT / "build")) / "gpulift-torch-parity"

# In a process of its own, where torch belongs: saves weights and batch, runs the program, and
# prints by model, type and tensor the largest difference over the largest element. Of full size
# one type shows that sizes are right; a small model of the same code has both types.
COMPARE = """
import copy, subprocess, sys, torch

def compare(program, name, model, given, target, tied):
    state = {key: one.contiguous() for key, one in model.state_dict().items() if key not in tied}
    torch.save(state, "weights")
    torch.save({"input": given, "target": target}, "batch")
    for kind in {"gpt2": ["fp32"], "resnet50": ["fp64"]}.get(name, ["fp32", "fp64"]):
        found = outputs_of(program, name, kind)
        print_differences(f"{name} {kind}", found, copy.deepcopy(model), given, target)

def outputs_of(program, name, kind):
    files = ["--weights", "weights", "--batch", "batch", "--out", "out", "--device", device]
    flags = ["--fp64"] if kind == "fp64" else []
    subprocess.run([program, "--model", name, *files, *flags], check=True)
    return torch.load("out", weights_only=False)

def print_differences(what, found, model, given, target):
    if what.endswith("fp64"):
        model = model.double()
        given = given.double() if given.is_floating_point() else given
    outputs = model.to(device).train()(given.to(device))
    logits = getattr(outputs, "logits", outputs)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.to(device).flatten())
    loss.backward()
    expected = {"logits": logits.detach(), "loss": loss.detach()}
    for key, one in model.named_parameters():
        expected["grad." + key] = one.grad
    saved = model.state_dict()
    expected.update({key: one for key, one in model.named_buffers() if key in saved})
    print(what, "missing", sorted(expected.keys() ^ found.keys()))
    for key, one in expected.items():
        scale = one.double().abs().max().item() or 1.0
        print(what, key, (one.cpu().double() - found[key].double()).abs().max().item() / scale)

device = sys.argv[2]
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(1)
torch.set_num_threads(1)
"""
IMAGES = """
from torchvision.models import resnet18, resnet50
models = (("resnet50", resnet50, 64, 1000), ("resnet18", resnet18, 32, 10))
for name, make, pixels, classes in models:
    compare(sys.argv[1], name, make(num_classes=classes), torch.randn(4, 3, pixels, pixels),
            torch.randint(classes, (4,)), [])
"""
# Of full size: transformers' defaults but for the padding, and as few tokens as tell. LLaMA's
# weights are larger than its own: at first attention is nearly even, and places hardly tell.
TEXTS = """
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
ends = {"bos_token_id": 0, "eos_token_id": 0}
dropout = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
small = {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 64}
gpt_toy = GPT2LMHeadModel(GPT2Config(**small, **dropout, **ends))
gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50304, **dropout, **ends))
llama = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
                         num_key_value_heads=2, intermediate_size=128, max_position_embeddings=32,
                         vocab_size=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
                         rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, **ends))
for one in llama.parameters():
    one.data *= 5 if one.dim() == 2 else 1
for name, model, shape in (("gpt_toy", gpt_toy, (2, 32)), ("gpt2", gpt2, (1, 48)),
                           ("llama_toy", llama, (2, 32))):
    tokens = lambda: torch.randint(model.config.vocab_size, shape)
    compare(sys.argv[1], name, model, tokens(), tokens(), ["lm_head.weight"])
"""
PACKAGES = {"torchvision": IMAGES, "transformers": TEXTS}
Differences = dict[str, dict[str, float]]  # by type and tensor


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Each kind; a test is skipped on a GPU that is not there."""
    name = str(request.param)
    if name == "cuda" and not has_gpu():
        pytest.skip("no GPU")
    return name


@cache
def has_gpu() -> bool:
    """As torch sees it."""
    require()
    command = [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"]
    return subprocess.run(command, capture_output=True, check=True).stdout == b"True\n"


def require(*packages: str) -> None:
    """Skips without the program or a package, and says which."""
    for package in ("torch", *packages):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if not PROGRAM.is_file():
        pytest.skip(f"{PROGRAM.name} is not built: it needs LibTorch")


@cache
def differences(package: str, device: str) -> dict[str, Differences]:
    """By model, of all that one process compares, since to import takes longer than most of them.
    Fails where only one side has a tensor."""
    require(package)
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", COMPARE + PACKAGES[package], str(PROGRAM), device],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Differences] = {}
    for model, kind, name, value in (line.split(maxsplit=3) for line in done.stdout.splitlines()):
        if name == "missing":
            assert value == "[]", model
        else:
            of_model = found.setdefault(model, {"fp32": {}, "fp64": {}})
            of_model[kind][name] = float(value)
    return found


@pytest.mark.parametrize("name", ["resnet50", "resnet18"])
def test_residual_networks_agree_with_torchvision(name: str, device: str) -> None:
    found = differences("torchvision", device)[name]
    # The gradients' rounding in FP32 is itself a fifth of the largest, measured against FP64: a
    # ReLU that opens or stays shut tells on a batch that small. So FP64 judges them.
    forward = {key: one for key, one in found["fp32"].items() if not key.startswith("grad.")}
    assert max(forward.values(), default=float(name != "resnet50")) < 1e-4, forward
    assert max(found["fp64"].values()) < 1e-5, found["fp64"]
    assert found["fp64"]["bn1.num_batches_tracked"] == 0
    assert sum(key.startswith("grad.") for key in found["fp64"]) > 60


@pytest.mark.parametrize("name", ["gpt_toy", "gpt2"])
def test_gpt_agrees_with_transformers(name: str, device: str) -> None:
    found = differences("transformers", device)[name]
    assert max(found["fp32"].values()) < 1e-4, found["fp32"]
    # The C++ loss is in FP32.
    assert max(found["fp64"].values(), default=float(name != "gpt2")) < 1e-6, found["fp64"]
    assert "grad.transformer.h.1.attn.c_attn.weight" in found["fp32"]


def test_llama_agrees_with_transformers(device: str) -> None:
    """With keys and values that heads share, and positions that are angles."""
    found = differences("transformers", device)["llama_toy"]
    assert max(found["fp32"].values()) < 1e-4, found["fp32"]
    # In FP64, too, transformers' norms and angles are in FP32.
    assert max(found["fp64"].values()) < 1e-5, found["fp64"]
    assert "grad.model.layers.1.self_attn.k_proj.weight" in found["fp64"]


def test_the_program_names_the_tensor_of_a_file_that_does_not_fit(tmp_path: Path) -> None:
    require()
    code = """
import sys, subprocess, torch
torch.save({"layers.0.weight": torch.zeros(2, 2)}, "weights")
torch.save({"input": torch.randn(2, 4096), "target": torch.randn(2, 4096)}, "batch")
done = subprocess.run([sys.argv[1], "--model", "mlp", "--weights", "weights", "--batch", "batch",
                       "--out", "out"], capture_output=True, text=True)
print(done.returncode, done.stderr.strip())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(PROGRAM)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"1 weights: tensor layers\.0\.\w+ .*\n", done.stdout), done.stdout
