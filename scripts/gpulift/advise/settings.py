"""What must be set ahead of a process."""

from __future__ import annotations

from dataclasses import dataclass

from gpulift.advise.evidence import Keeps


@dataclass(frozen=True)
class Setting:
    """One way of starting the user's command."""

    name: str
    label: str
    keeps: Keeps
    why_not: str = ""  # empty where it is tried
