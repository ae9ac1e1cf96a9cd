"""Messages as a probe would say them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpulift.advise.evidence import (
    BASELINE,
    Arm,
    Check,
    Course,
    End,
    Facts,
    Failed,
    Hello,
    Live,
    Loader,
    Memory,
    Process,
    Window,
    read_process,
)

GPU = "NVIDIA H200"
STEP_S = 0.1
LOSSES = (2.0, 1.5, 1.0)
FACTS = Facts(anchor="loader", optimizers=("AdamW",), loader=Loader(workers=4, batch=32))


def silent(setting: str = BASELINE, turn: int = 0) -> Process:
    """A process that said nothing."""
    return read_process(setting, turn, Path("no such file"))


def turn(
    setting: str,
    turn: int,
    step_s: float,
    *,
    losses: Sequence[float] = LOSSES,
    facts: Facts = FACTS,
    memory: Memory | None = None,
    device: str = GPU,
) -> Process:
    """A process whose live steps all took as long."""
    return replace(
        silent(setting, turn),
        hello=Hello(torch="2.11.0", python="3.12.3", device=device, cores=16),
        facts=facts,
        live=(Live(steps_s=(step_s,) * 5),),
        losses=tuple(Course(losses=tuple(losses)).losses),
        memory=memory,
        ended=End(steps=len(losses)),
    )


def replay(
    gains: Mapping[str, float],
    *,
    wait_share: float = 0.0,
    arms: Sequence[Arm] = (),
    checks: Sequence[Check] = (),
    failed: Sequence[Failed] = (),
    peaks: Mapping[str, int] | None = None,
    facts: Facts = FACTS,
    device: str = GPU,
    issued: float = 0.5,
) -> Process:
    """A process of three mirrored blocks, which drift; each arm has its gain over the step."""
    names = [BASELINE, *gains]
    windows = []
    for block in range(3):
        for place, arm in enumerate([*names, *reversed(names)]):
            step_s = STEP_S / gains.get(arm, 1.0) * 1.001 ** (block * 2 * len(names) + place)
            windows.append(
                Window(
                    arm=arm,
                    block=block,
                    place=place,
                    steps=8,
                    seconds=8 * step_s,
                    issued_s=8 * step_s * issued,
                    peak_bytes=(peaks or {}).get(arm, 0),
                )
            )
    known = {arm.arm: arm for arm in arms}
    checked = {arm: Check(arm=arm, bits=True) for arm in names}
    base_s = sorted(one.seconds / one.steps for one in windows if one.arm == BASELINE)
    live_s = base_s[len(base_s) // 2] / (1 - wait_share)
    return replace(
        turn(BASELINE, 0, live_s, facts=facts, device=device, losses=()),
        windows=tuple(windows),
        arms={name: tried(name) for name in gains} | known,
        checks=checked | {check.arm: check for check in checks},
        failed=tuple(failed),
    )


def tried(name: str) -> Arm:
    """An arm that was measured."""
    return Arm(arm=name, label=name.replace("_", " "), state="tried")


def launches(gains: Mapping[str, float], count: int = 4, noise: float = 0.001) -> list[Process]:
    """Replays that differ by noise."""
    chance = random.Random(1)
    return [
        replay({name: gain * (1 + chance.gauss(0, noise)) for name, gain in gains.items()})
        for _ in range(count)
    ]


def rounds(setting: str, gains: Sequence[float], keeps: Sequence[float] = LOSSES) -> list[Process]:
    """A round for each gain: the step as it is, and with the setting."""
    found = []
    for number, gain in enumerate(gains):
        found.append(turn(BASELINE, number, STEP_S))
        found.append(turn(setting, number, STEP_S / gain, losses=keeps))
    return found
