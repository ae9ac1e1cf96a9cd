"""What must be set ahead of a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpulift.advise.evidence import BASELINE, Keeps


@dataclass(frozen=True)
class Setting:
    """One way of starting the user's command: what the probe is told, and what the process gets."""

    name: str
    label: str
    keeps: Keeps
    why_not: str = ""  # empty where it is tried
    told: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()  # more than the user's own


AS_IT_IS = Setting(BASELINE, BASELINE, "bits")


def merged(name: Setting, parts: Sequence[Setting], switches: Sequence[str]) -> Setting:
    """All of the parts in one process, with these switches of the probe flipped."""
    told: dict[str, Any] = {"switches": list(switches)} if switches else {}
    for part in parts:
        for key, value in part.told.items():
            told[key] = {**told.get(key, {}), **value} if isinstance(value, Mapping) else value
    return replace(
        name,
        told=told,
        environment={key: value for part in parts for key, value in part.environment.items()},
        arguments=tuple(argument for part in parts for argument in part.arguments),
    )
