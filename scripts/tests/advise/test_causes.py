"""Small scripts, each with one cause planted that silently costs a step: it is named, and switched
off where it can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulift.advise.evidence import BASELINE
from tests.advise import scripts
from tests.advise.scripts import Ended, Forks

pytestmark = pytest.mark.world

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(5)])
called = trained = model
SETUP
rows = TensorDataset(torch.randn(64, 8), torch.randn(64, 8))
optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
for epoch in range(1000):
    for inputs, targets in DataLoader(rows, batch_size=16):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(called(inputs), targets)
        loss.backward()
        STEP
        optimizer.step()
"""
SWITCHES = ("anomaly", "fill", "deterministic", "data_parallel", "unread", "second_pass")
MATH = """\
from torch.nn.attention import SDPBackend, sdpa_kernel
query = torch.randn(1, 2, 4, 8, requires_grad=True)
def called(inputs):
    with sdpa_kernel(SDPBackend.MATH):
        rows = nn.functional.scaled_dot_product_attention(query, query, query)
    return model(inputs) + rows.mean()
"""
BREAKS = """\
class Breaks(nn.Module):
    def forward(self, rows):
        rows = model(rows)
        torch._dynamo.graph_break()
        return rows + 1
called = torch.compile(Breaks(), backend="eager")
"""


@pytest.fixture(name="forks", scope="module")
def _forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


def text(setup: str = "", step: str = "pass") -> str:
    return SCRIPT.replace("SETUP", setup).replace("STEP", step)


def notes_of(ended: Ended) -> tuple[str, ...]:
    assert (ended.code, ended.said.failed) == (75, ()), ended.error
    assert ended.said.facts is not None
    return ended.said.facts.notes


def tried(ended: Ended) -> set[str]:
    return {name for name, arm in ended.said.arms.items() if arm.state == "tried"}


@pytest.mark.parametrize(
    ("setup", "step", "names", "bits"),
    [
        ("", "pass", set(), True),
        ("torch.autograd.set_detect_anomaly(True)", "pass", {"anomaly"}, True),
        ("", "torch.autograd.set_detect_anomaly(True)", {"anomaly"}, True),
        ("torch.use_deterministic_algorithms(True)", "pass", {"fill", "deterministic"}, True),
        ("torch.backends.cudnn.deterministic = True", "pass", {"deterministic"}, True),
        ("called = nn.DataParallel(model)", "pass", {"data_parallel"}, True),
        ("trained = model[4]", "pass", {"unread"}, True),
        ("", "nn.utils.clip_grad_norm_(model.parameters(), 1e-3)", set(), True),
        (
            "trained = model[4]",
            "nn.utils.clip_grad_norm_(model.parameters(), 1e-3)",
            {"unread"},
            False,  # they are read: by the norm
        ),
        ("", "with torch.no_grad(): called(inputs)", {"second_pass"}, True),
        ("teacher = nn.Linear(8, 8)", "with torch.no_grad(): teacher(inputs)", set(), True),
    ],
)
def test_a_cause_that_can_be_switched_off(
    forks: Forks, tmp_path: Path, setup: str, step: str, names: set[str], bits: bool
) -> None:
    ended = forks.run(tmp_path, text(setup, step), "replay", only=SWITCHES)
    notes_of(ended)
    assert tried(ended) == names
    assert ended.said.checks[BASELINE].bits
    assert {window.arm for window in ended.said.windows} == names | {BASELINE}
    assert all(ended.said.checks[name].bits == bits for name in names)


@pytest.mark.parametrize(
    ("setup", "step", "said"),
    [
        ("", "pass", ()),
        ("model[:3].requires_grad_(False)", "pass", ("60 % of the weights are not trained",)),
        (
            "",
            "sum(one.grad.norm() ** 2 for one in model.parameters())",
            ("norms one by one: 10 a step (train.py:", "get_total_norm"),
        ),
        ("", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)", ()),  # torch's own way
        (
            "",
            "[torch.zeros_like(one).zero_() for one in model.parameters()]",
            ("tensors zeroed one by one: 10 a step (train.py:",),
        ),
        (
            "each = [torch.optim.SGD([one]) for one in model.parameters()]",
            "[one.step() for one in each]",
            ("11 optimizers take turns",),
        ),
        (MATH, "pass", ("attention without a fused kernel: 1 a step",)),
        (
            "model[0].register_forward_hook(lambda *_: None)",
            "pass",
            ("hooks of the script on modules: 1, of train.py",),
        ),
        (BREAKS, "pass", ("graph breaks, the first by: ",)),
        (
            'called = torch.compile(model, backend="eager")',
            "called(inputs[: 1 + epoch % 2])",
            ("recompilations, the first by: ",),
        ),
    ],
)
def test_a_cause_that_is_seen(
    forks: Forks, tmp_path: Path, setup: str, step: str, said: tuple[str, ...]
) -> None:
    notes = notes_of(forks.run(tmp_path, text(setup, step), "replay", only=[]))
    assert bool(notes) == bool(said)
    assert [part for part in said if not any(part in note for note in notes)] == []


@pytest.mark.parametrize(
    ("setup", "step", "is_named"),
    [
        ("import time", "time.sleep(0.05)", True),
        ("import json", "[json.dumps(list(range(20000))) for _ in range(20)]", True),
        ("big = torch.randn(1000, 1000)", "for _ in range(5): big @ big", False),  # torch's own
    ],
)
def test_work_on_the_host_in_a_step(
    forks: Forks, tmp_path: Path, setup: str, step: str, is_named: bool
) -> None:
    ended = forks.run(tmp_path, text(setup, step), "turn")
    notes_of(ended)
    assert ended.said.facts is not None
    found = {line: share for line, share in ended.said.facts.host.items() if share > 0.3}
    lines = (tmp_path / scripts.SCRIPT).read_text("utf-8").splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.strip() == step)
    assert list(found) == ([f"train.py:{number}"] if is_named else [])


def test_a_dataset_that_is_slow_is_input_and_no_work_of_the_step(
    forks: Forks, tmp_path: Path
) -> None:
    setup = (
        "import time\nclass Slow(TensorDataset):\n    def __getitem__(self, at):\n"
        "        time.sleep(0.002)\n        return super().__getitem__(at)\nTensorDataset = Slow"
    )
    ended = forks.run(tmp_path, text(setup), "turn")
    notes_of(ended)
    assert ended.said.facts is not None
    assert max(ended.said.facts.host.values(), default=0.0) < 0.3


def test_a_phase_that_begins_meanwhile(forks: Forks, tmp_path: Path) -> None:
    """The head alone, then all: of which steps could windows tell?"""
    setup = "model[:4].requires_grad_(False)\nsteps = []"
    step = "steps.append(0); model.requires_grad_(len(steps) > 15)"
    ended = forks.run(tmp_path, text(setup, step + "; model[4].requires_grad_(True)"), "replay")
    (failed,) = ended.said.failed
    assert failed.why.startswith("the script trains 360 weights since step ")
    assert "and 72 ahead of it: have it begin with" in failed.why


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("", True),  # the script itself looks for it
        ("called = __import__('models').Model(model)", True),
        ("__import__('models')", False),  # no part of the step
    ],
)
def test_a_package_that_is_not_there(tmp_path: Path, library: str, said: bool) -> None:
    """Ahead of torch, too. A library that looks for much tells of what the step runs alone."""
    looks = "try: import flash_attn\nexcept ImportError: pass\n"
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "models.py").write_text(
        f"{looks}from torch import nn\nclass Model(nn.Sequential): pass\n", encoding="utf-8"
    )
    first = f"import torch\nimport sys; sys.path.append({str(installed)!r})\n"
    script = first + ("" if library else looks) + text(library).replace("import torch\n", "", 1)
    notes = notes_of(scripts.run(tmp_path, script, "turn"))
    assert bool(notes) == said
    assert all("flash_attn: is looked for and not there (" in note for note in notes)
