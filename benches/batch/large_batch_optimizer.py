"""batch/large_batch_optimizer: what a model has learned from as many samples in larger batches."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as nnf
from gpulift_work import courses
from gpulift_work.shapes import SHAPES, draw
from gpulift_work.training import arm_on, device_of, free_memory, make_model, memory_of, set_up
from gpulift_worker import Arm, Skip
from torch import nn

TECHNIQUE = {
    "question": "What does a larger batch cost of what a model learns, from as many samples and "
    "from as many updates, and which optimizer gives it back?",
    "expectation": """
        A training of a batch of 64 sees 32,768 images of ten shapes in 512 updates. From as many
        samples a batch of 256 makes 128 updates and one of 1024 makes 32; from as many updates
        they see 4 and 16 times the images. Each arm may choose among three learning rates. From
        as many samples: up to 256 twice and more the rate gives the same loss; at 1024 the rate
        of small batches leaves it far behind, 3 times the held-out loss; 16 times the rate is too
        much in part, 1.2 to 1.5; LARS and LAMB, whose steps are a share of each weight's norm, 1.1
        to 1.3. From as many updates no larger batch is behind, since it was updates that it
        lacked: 0.3 to 1.0 of the loss. Time: a step of ResNet-18 with 64 images is bound by
        launches, 5.6 ms on an H100, some 11,000 images/s; 1024 take 7 ms, 13 times the rate. LARS
        and LAMB add some 10 calls for each of 62 weights, 2 ms of launches in front of what the
        GPU is busy with: 0.7 to 1.0 of SGD's rate. The toy on a host learns from 8,192 images: the
        arithmetic bounds it, and its rate grows 1.5 times.
    """,
    "predict": [
        {
            "case": {"model": "resnet18"},
            "on": "h100",
            "step_time_s": {"small_batch": [0.00504, 0.00616]},
        },
        {
            "case": {"model": "resnet18", "batch": 1024},
            "on": "h100",
            "speedup": {
                "sgd": [11.7, 14.3],
                "sgd_scaled": [11.7, 14.3],
                "lars": [9.1, 13],
                "lamb": [9.1, 13],
            },
        },
        {
            "case": {"model": "toy"},
            "on": "cpu",
            "speedup": {"sgd": [1.35, 1.65], "sgd_scaled": [1.35, 1.65]},
        },
    ],
    "claims": ["larger-batch-less-accurate", "higher-rate-keeps-accuracy", "lars-keeps-accuracy"],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["small_batch", "sgd", "sgd_scaled", "lars", "lamb"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["resnet18", "toy"], "batch": [256, 1024], "equal": ["samples", "updates"]},
    "check": {
        "meaning": "held-out loss after all updates, mean of 3 seeds, over that of guessing",
        "tolerance": 0.99,
    },
}
SMALL = 64
SAMPLES = {"resnet18": 32768, "toy": 8192}
HELD_OUT = 2048
HELD_OUT_BATCH = 256
TARGET = 1.0  # of the held-out loss: guessing has 2.3
SEEDS = 3
RATES = {"small_batch": 0.15, "sgd": 0.15, "sgd_scaled": 0.15, "lars": 10.0, "lamb": 0.05}
MOMENTUM, DECAY, TRUST = 0.9, 1e-4, 0.01


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Steps on one batch; the check trains models from their beginning."""
    name, batch = str(point["model"]), SMALL if arm == "small_batch" else int(point["batch"])
    if gpu is None and name != "toy":
        raise Skip(f"trainings of {name} take hours on a processor", "use a GPU")
    device = device_of(gpu)
    threads = set_up(device)
    torch.backends.cudnn.allow_tf32 = True  # as torch has it by itself
    updates = SAMPLES[name] // (batch if point["equal"] == "samples" else SMALL)
    trial = Trial(arm, name, batch, updates, device)
    model, optimizer = trial.start(seed, trial.rate)
    given = draw(batch, generator_on(device, seed))
    taken: list[courses.Course] = []

    def step() -> None:
        take_step(model, optimizer, *given)

    def error() -> float:
        taken.extend(courses.best_courses(trial.rate, range(seed, seed + SEEDS), trial.train))
        free_memory(device)
        return courses.mean_loss(taken) / math.log(len(SHAPES))

    return arm_on(
        device,
        threads,
        step=step,
        error=error,
        metrics=lambda: {
            **memory_of(step, device),
            **courses.facts_of(taken, TARGET, "sample", batch),
        },
        items=batch,
        item="image",
    )


class Trial:
    """Trainings with an arm's optimizer and batch."""

    def __init__(self, arm: str, name: str, batch: int, updates: int, device: torch.device) -> None:
        self.arm, self.name, self.batch, self.device = arm, name, batch, device
        self.updates = updates
        self.rate = RATES[arm] * (batch / SMALL if arm == "sgd_scaled" else 1.0)

    def start(self, seed: int, rate: float) -> tuple[nn.Module, torch.optim.Optimizer]:
        """A model of the seed's weights, and its optimizer."""
        torch.manual_seed(seed)
        model = (toy() if self.name == "toy" else make_model(self.name)).to(self.device)
        return model, OPTIMIZERS.get(self.arm, sgd)(list(model.parameters()), rate)

    def train(self, seed: int, rate: float) -> courses.Course:
        """On other images in each update."""
        model, optimizer = self.start(seed, rate)
        generator = generator_on(self.device, seed)
        return courses.train(
            optimizer,
            rate,
            self.updates,
            update=lambda: take_step(model, optimizer, *draw(self.batch, generator)),
            look=lambda: held_out_loss(model, self.device),
        )


def take_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, given: torch.Tensor, target: torch.Tensor
) -> None:
    """On one batch."""
    optimizer.zero_grad(set_to_none=True)
    nnf.cross_entropy(model(given), target).backward()
    optimizer.step()


def held_out_loss(model: nn.Module, device: torch.device) -> float:
    """On images that no training sees. Norms take the means of these, since few steps leave none
    that are worth much."""
    images, kinds = draw(HELD_OUT, generator_on(device, -1))
    with torch.no_grad():
        logits = [model(part) for part in images.split(HELD_OUT_BATCH)]
        return float(nnf.cross_entropy(torch.cat(logits), kinds))


def generator_on(device: torch.device, seed: int) -> torch.Generator:
    """Of images; a seed below 0 is of those held out."""
    return torch.Generator(device).manual_seed(seed + 1 if seed >= 0 else 2**40)


def toy() -> nn.Module:
    """Three convolutions with norms."""
    layers: list[nn.Module] = []
    for channels, wider in ((3, 8), (8, 16), (16, 32)):
        layers += [
            nn.Conv2d(channels, wider, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(SHAPES)))


def sgd(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """With momentum."""
    return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, weight_decay=DECAY)


class Layerwise(torch.optim.Optimizer):
    """Steps whose length is a share of each weight's norm; norms and biases keep their own."""

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        super().__init__(parameters, {"lr": rate})

    def step(self, closure: None = None) -> None:
        """Of all weights."""
        with torch.no_grad():
            for group in self.param_groups:
                for one in group["params"]:
                    self.update(one, self.state[one], group["lr"])

    def update(self, weight: nn.Parameter, state: dict[str, torch.Tensor], rate: float) -> None:
        """Of one weight."""
        raise NotImplementedError


def ratio(weight: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Of their norms; 1 where one of them is zero, and for norms and biases."""
    of_weight, of_change = weight.norm(), change.norm()
    useful = (of_weight > 0) & (of_change > 0) & (weight.dim() > 1)
    return torch.where(useful, of_weight / of_change, torch.ones_like(of_weight))


class Lars(Layerwise):
    """SGD with momentum of gradients that were scaled to a share of the weight."""

    def update(self, weight: nn.Parameter, state: dict[str, torch.Tensor], rate: float) -> None:
        assert weight.grad is not None
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        change = weight.grad + DECAY * weight if weight.dim() > 1 else weight.grad
        scale = TRUST * ratio(weight, change) if weight.dim() > 1 else 1.0
        state["momentum"].mul_(MOMENTUM).add_(rate * scale * change)
        weight.sub_(state["momentum"])


class Lamb(Layerwise):
    """AdamW whose whole step is scaled to the weight."""

    def update(self, weight: nn.Parameter, state: dict[str, torch.Tensor], rate: float) -> None:
        assert weight.grad is not None
        if not state:
            state.update({name: torch.zeros_like(weight) for name in ("mean", "square")})
            state["steps"] = torch.zeros((), device=weight.device)
        state["steps"] += 1
        state["mean"].lerp_(weight.grad, 0.1)
        state["square"].mul_(0.99).addcmul_(weight.grad, weight.grad, value=0.01)
        mean = state["mean"] / (1 - 0.9 ** state["steps"])
        square = state["square"] / (1 - 0.99 ** state["steps"])
        change = mean / (square.sqrt() + 1e-6) + (DECAY * weight if weight.dim() > 1 else 0)
        weight.sub_(rate * ratio(weight, change) * change)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "lars": Lars,
    "lamb": Lamb,
}
