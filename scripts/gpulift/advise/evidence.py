"""What the probe said in one process of the user's command: a JSON object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, convert

from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.records.values import Count, Seconds, Whole

BASELINE = "as it is"
TOGETHER = "together"  # the setting of processes with all that helps
PROCESSOR = "cpu"  # the device of a process without a GPU

Keeps: TypeAlias = Literal["bits", "step", "work"]
State: TypeAlias = Literal["tried", "already on", "not applicable", "failed"]


class Message(Struct, frozen=True, tag_field="say", tag=str.lower):
    """One line."""


class Hello(Message, frozen=True):
    """Of the process, as soon as torch is there."""

    torch: str
    device: str
    python: str = ""
    cores: int = 0
    world: int = 1
    refused: str = ""  # why its ranks cannot be followed


class Loader(Struct, frozen=True):
    """The DataLoader of the training loop; its batch is unknown where nothing tells it."""

    workers: int = 0
    prefetch: int | None = None
    pin_memory: bool = False
    batch: int | None = None
    sampled: bool = False  # the script itself makes the batches
    dealt: bool = True  # each of several workers would give items of its own
    threaded: bool = False  # another thread reads it
    batches: int | None = None  # of an epoch
    starts_s: float = 0.0  # to the first batch of each epoch


class Ddp(Struct, frozen=True):
    """The wrapper that exchanges gradients among ranks."""

    bucket_cap_mb: float
    gradients_mb: float
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    find_unused_parameters: bool = False
    hooked: bool = False  # the script itself says how they are exchanged
    short: bool = False  # gradients of less than 4 bytes


class Facts(Message, frozen=True):
    """Of the training loop, when its steps are flat."""

    anchor: Literal["loader", "optimizer"]
    steps_before: int | None = None  # they were flat
    optimizers: tuple[str, ...] = ()
    loader: Loader | None = None
    batches_per_step: float = 1
    compiled: bool = False
    convolutions: bool = False
    cudnn_search: bool = False
    notes: tuple[str, ...] = ()
    hooks_s: float = 0.0  # what the probe itself takes of a step
    host: dict[str, float] = {}  # what lines take of the step outside of torch
    unset: str = ""  # why what it was told to change did not come about
    ddp: Ddp | None = None
    issued: int = 0  # outermost operators of a step; 0 where that is not known


class Arm(Message, frozen=True):
    """What became of one way of taking the step; of two of one arm the later holds."""

    arm: str
    label: str
    state: State
    why: str = ""
    keeps: Keeps = "step"


class Live(Message, frozen=True):
    """Steps of a span with the loader as it is, and what of each was spent in the loader."""

    steps_s: tuple[Seconds, ...]
    waits_s: tuple[float, ...] = ()


class Window(Message, frozen=True):
    """Steps of one arm on cached batches, to their end on the device."""

    arm: str
    block: Whole
    place: int
    steps: Count
    seconds: Seconds
    issued_s: float  # until the host had issued all
    peak_bytes: Whole = 0  # 0 on a processor


class Check(Message, frozen=True):
    """One step of an arm against one as it is, both from the saved state."""

    arm: str
    losses: tuple[float, ...] = ()
    bits: bool = False
    gradient: float | None = None  # relative distance of all gradients
    band: float = 0.0
    why: str = ""


class Course(Message, frozen=True):
    """The losses of the first steps: rounding alone sends later ones of some trainings apart."""

    losses: tuple[float, ...]
    rounded: bool = False  # its weights were off by their last bit behind the first


class Memory(Message, frozen=True):
    """The most on the device, and of the process and its children on the host."""

    device_bytes: Whole = 0
    host_bytes: Whole = 0


class Failed(Message, frozen=True):
    """Why an arm, or the process where the arm is empty, came to no result."""

    why: str
    arm: str = ""


class End(Message, frozen=True):
    """The process said all."""

    steps: Whole
    asides: Whole = 0  # evaluations between steps
    aside_s: float = 0.0  # of theirs for each step; 0 where none are known to come again


KINDS: dict[str, type[Message]] = {
    kind.__name__.lower(): kind
    for kind in (Hello, Facts, Arm, Live, Window, Check, Course, Memory, Failed, End)
}
Said = TypeVar("Said", bound=Message)


@dataclass(frozen=True)
class Rank:
    """What one of several ranks has of its own: a step that it takes by itself, and how long one
    waits for its input."""

    alone_s: float | None
    wait_s: float


@dataclass(frozen=True)
class Process:
    """One process of the command: what it was started with, in which round, and what it said."""

    setting: str
    turn: int
    hello: Hello | None
    facts: Facts | None
    arms: dict[str, Arm]
    live: tuple[Live, ...]
    windows: tuple[Window, ...]  # in the order in which they were taken
    checks: dict[str, Check]
    losses: tuple[float, ...]
    rounded: bool  # see Course
    memory: Memory | None
    failed: tuple[Failed, ...]
    ended: End | None
    ranks: tuple[Rank, ...] = ()  # empty where there is one; else all of this is of the slowest

    @property
    def steps_s(self) -> list[float]:
        """Seconds of each live step."""
        return [step_s for span in self.live for step_s in span.steps_s]

    @property
    def wait_s(self) -> float:
        """Of a live step, for its input; 0 without a loader."""
        waits_s = [wait_s for span in self.live for wait_s in span.waits_s]
        return sum(waits_s) / len(self.steps_s) if waits_s else 0.0

    @property
    def on_gpu(self) -> bool:
        """Whether it trained on a GPU."""
        return self.hello is not None and self.hello.device != PROCESSOR


def read_process(setting: str, turn: int, file: Path) -> Process:
    """What the process said so far; nothing where there is no file, as it never imported torch.

    Passes over a last line that is cut, and over what a newer probe says beyond this. Raises
    GpuliftError for any other line that is none of the probe's.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}", FAILED) from None
    messages = list(_messages(content, file))

    def of(kind: type[Said]) -> list[Said]:
        return [message for message in messages if isinstance(message, kind)]

    windows = sorted(of(Window), key=lambda window: (window.block, window.place))
    return Process(
        setting=setting,
        turn=turn,
        hello=_last(of(Hello)),
        facts=_last(of(Facts)),
        arms={arm.arm: arm for arm in of(Arm)},
        live=tuple(of(Live)),
        windows=tuple(windows),
        checks={check.arm: check for check in of(Check)},
        losses=tuple(loss for course in of(Course) for loss in course.losses),
        rounded=any(course.rounded for course in of(Course)),
        memory=_last(of(Memory)),
        failed=tuple(of(Failed)),
        ended=_last(of(End)),
    )


def _last(messages: list[Said]) -> Said | None:
    return messages[-1] if messages else None


def _messages(content: bytes, file: Path) -> Iterator[Message]:
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            message = _message(line)
        except ValueError as error:
            if number == len(lines):  # without an end of line: it was cut
                return
            raise GpuliftError(
                f"{file}:{number}: is no message of the probe: {error}", FAILED
            ) from None
        if message is not None:
            yield message


def _message(line: bytes) -> Message | None:
    """None of a kind that is not known, and of an empty line. Raises ValueError."""
    if not line.strip():
        return None
    raw = json.loads(line)  # a loss may be NaN, which msgspec's own reader refuses
    if not isinstance(raw, dict):
        raise ValueError("an object is expected")
    kind = KINDS.get(str(raw.get("say")))
    return None if kind is None else convert(raw, kind)
