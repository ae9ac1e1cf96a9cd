"""batch/large_batch_optimizer: what a model has learned from as many samples in larger batches."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

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
        and LAMB scale each of 62 weights in a call of its own, 0.4 ms of launches that hide behind
        what the GPU is busy with, and read weights of 45 MB once more: 0.9 to 1.0 of SGD's rate.
        The toy on a host learns from 8,192 images: the arithmetic bounds it, and its rate grows
        1.5 times.
    """,
    "predict": [
        "model:resnet18 @h100: small_batch 5.04-6.16 ms",
        "model:resnet18/batch:1024 @h100: sgd 11.7-14.3, sgd_scaled 11.7-14.3, lars 10.5-14.3,"
        " lamb 10.5-14.3",
        "model:conv_toy @cpu: sgd 1.35-1.65, sgd_scaled 1.35-1.65",
    ],
    "claims": [
        "larger-batch-less-accurate",
        "larger-batch-generalises-worse",
        "higher-rate-keeps-accuracy",
        "lars-keeps-accuracy",
    ],
    "whole_steps": True,
    "arms": ["small_batch", "sgd", "sgd_scaled", "lars", "lamb"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {
        "model": ["resnet18", "conv_toy"],
        "batch": [256, 1024],
        "equal": ["samples", "updates"],
    },
    "check": {
        "meaning": "held-out loss after all updates, mean of 3 seeds, over that of guessing",
        "tolerance": 0.99,
    },
}
SMALL = 64
SAMPLES = {"resnet18": 32768, "conv_toy": 8192}
HELD_OUT = 1024
HELD_OUT_BATCH = 256
TARGET = 1.0  # of the held-out loss: guessing has 2.3
SEEDS = 3
RATES = {"small_batch": 0.15, "sgd": 0.15, "sgd_scaled": 0.15, "lars": 10.0, "lamb": 0.05}
MOMENTUM, DECAY, TRUST = 0.9, 1e-4, 0.01

Tensors = Sequence[torch.Tensor]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Steps on one batch; the check trains models from their beginning."""
    name, batch = str(point["model"]), SMALL if arm == "small_batch" else int(point["batch"])
    if gpu is None and name != "conv_toy":
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
        self.held_out = draw(HELD_OUT, generator_on(device, -1))
        self.rate = RATES[arm] * (batch / SMALL if arm == "sgd_scaled" else 1.0)

    def start(self, seed: int, rate: float) -> tuple[nn.Module, torch.optim.Optimizer]:
        """A model of the seed's weights, and its optimizer."""
        torch.manual_seed(seed)
        model = (toy() if self.name == "conv_toy" else make_model(self.name)).to(self.device)
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
            look=lambda: held_out_loss(model, *self.held_out),
        )


def take_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, given: torch.Tensor, target: torch.Tensor
) -> None:
    """On one batch."""
    optimizer.zero_grad(set_to_none=True)
    nnf.cross_entropy(model(given), target).backward()
    optimizer.step()


def held_out_loss(model: nn.Module, images: torch.Tensor, kinds: torch.Tensor) -> float:
    """On images that no training sees. Norms take the means of these, since few steps leave none
    that are worth much."""
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
    """Steps whose length is a share of each weight's norm; norms and biases keep their own. In
    calls for all weights at once, as torch's own optimizers have them."""

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        super().__init__(parameters, {"lr": rate})
        self.parameters = parameters
        layers = [weight.dim() > 1 for weight in parameters]
        self.decays = [DECAY * is_layer for is_layer in layers]
        self.layers = torch.tensor(layers, device=parameters[0].device)

    def step(self, closure: None = None) -> None:
        """Of all weights."""
        with torch.no_grad():
            (group,) = self.param_groups
            gradients = [weight.grad for weight in self.parameters if weight.grad is not None]
            self.update(gradients, group["lr"])

    def update(self, gradients: Tensors, rate: float) -> None:
        """By gradients of all weights."""
        raise NotImplementedError

    def with_decay(self, changes: Tensors) -> Tensors:
        """Of layers a share of the weight is added."""
        decayed: Tensors = torch._foreach_add(
            changes, torch._foreach_mul(self.parameters, self.decays)
        )
        return decayed

    def scale(self, changes: Tensors, rate: float, trust: float = 1.0) -> None:
        """To the rate, and those of layers to a share of the weight's norm."""
        of_weights, of_changes = (
            torch.stack(torch._foreach_norm(values)) for values in (self.parameters, changes)
        )
        useful = (of_weights > 0) & (of_changes > 0)
        shares = trust * torch.where(useful, of_weights / of_changes, 1.0)
        scales = rate * torch.where(self.layers, shares, 1.0)
        torch._foreach_mul_(changes, scales.unbind())


class Lars(Layerwise):
    """SGD with momentum of gradients that were scaled to a share of the weight."""

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        super().__init__(parameters, rate)
        self.momenta = [torch.zeros_like(weight) for weight in parameters]

    def update(self, gradients: Tensors, rate: float) -> None:
        changes = self.with_decay(gradients)
        self.scale(changes, rate, TRUST)
        torch._foreach_mul_(self.momenta, MOMENTUM)
        torch._foreach_add_(self.momenta, changes)
        torch._foreach_sub_(self.parameters, self.momenta)


class Lamb(Layerwise):
    """AdamW whose whole step is scaled to the weight."""

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        super().__init__(parameters, rate)
        self.means, self.squares = (
            [torch.zeros_like(weight) for weight in parameters] for _ in range(2)
        )
        self.steps = 0

    def update(self, gradients: Tensors, rate: float) -> None:
        self.steps += 1
        torch._foreach_lerp_(self.means, gradients, 0.1)
        torch._foreach_mul_(self.squares, 0.99)
        torch._foreach_addcmul_(self.squares, gradients, gradients, 0.01)
        roots = torch._foreach_sqrt(torch._foreach_div(self.squares, 1 - 0.99**self.steps))
        torch._foreach_add_(roots, 1e-6)
        adam = torch._foreach_div(torch._foreach_div(self.means, 1 - 0.9**self.steps), roots)
        changes = self.with_decay(adam)
        self.scale(changes, rate)
        torch._foreach_sub_(self.parameters, changes)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "lars": Lars,
    "lamb": Lamb,
}
