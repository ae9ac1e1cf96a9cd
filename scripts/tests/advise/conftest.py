"""The probe is imported as in a user's process: from the folder that is put on its path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT

sys.path.append(str(CHECKOUT / "scripts" / "gpulift" / "advise" / "inject"))


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Whatever the test does, torch is behind it as it was."""
    from tests.advise import steps

    before = steps.settings()
    yield
    assert steps.settings() == before


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some GPU with TF32 and BF16."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (8, 0))


@pytest.fixture
def old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (7, 5))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """That of spans and windows, which stands still until a test moves `now_s`."""
    made = SimpleNamespace(now_s=0.0)
    made.perf_counter = made.monotonic = lambda: made.now_s
    for name in ("span", "windows"):
        monkeypatch.setattr(f"gpulift_probe.{name}.time", made)
    return made
