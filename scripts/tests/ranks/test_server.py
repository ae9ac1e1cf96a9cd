"""What a rank does for rank 0, and leaves behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.ranks import server, store
from gpulift.ranks.launched import LOOPBACK, Launched
from gpulift.ranks.server import Here, Session
from gpulift.ranks.store import Store
from tests.ranks.conftest import KEY, free_port

pytest.importorskip("torch")

HANGS = "import os, time; os.close(3); time.sleep(600)"


@pytest.fixture
def place() -> Launched:
    return Launched("environment", 0, 2, 0, LOOPBACK, free_port())


@pytest.fixture
def first(place: Launched) -> Iterator[Store]:
    """Rank 0's connection."""
    made = store.meet(place, KEY)
    yield made
    made.close()


@pytest.fixture
def here(tmp_path: Path) -> Here:
    """Rank 1, whose workers hang as they end."""
    (tmp_path / "technique.py").touch()
    (tmp_path / "gpulift_worker.py").write_text(HANGS)
    return Here(1, tmp_path / "gpulift-bench", Path(sys.executable), (tmp_path,), None, {})


@pytest.mark.parametrize(
    ("name", "value"), [("LD_PRELOAD", "x"), ("PATH", "x"), ("NCCL_NET_PLUGIN", "/tmp/evil.so")]
)
def test_a_variable_that_loads_something_is_refused(here: Here, name: str, value: str) -> None:
    with pytest.raises(GpuliftError, match=f"rank 0 asks for {name}, which no rank sets"):
        here.variables({"NCCL_PROTO": "LL", name: value})


def test_workers_that_ended_hold_no_connections(place: Launched, first: Store, here: Here) -> None:
    serving = Thread(target=server.serve, args=(store.meet(replace(place, rank=1), KEY), here))
    serving.start()
    counts = []
    for number in range(6):
        first.put(f"1/{number}/down/0", {"end": True})
        first.put(f"1/session/{number}", {"session": number})
        assert first.take(f"1/{number}/up/0", 20.0) == {"ended": 0}
        counts.append(len(os.listdir("/proc/self/fd")))
    first.put("1/session/6", {"bye": 0})
    serving.join(20.0)
    assert not serving.is_alive()
    assert max(counts) <= counts[0] + 8, "those of a session are two, with both their ends four"


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the pipes, which go with the session
def test_a_worker_that_hangs_at_its_end_is_told_without_its_folders(
    place: Launched, first: Store, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ENDS_WITHIN_S", 0.2)
    line = json.dumps({"start": {"file": "technique.py", "environment": {}}})
    first.put("1/0/down/0", {"line": line})
    session = Session(store.meet(replace(place, rank=1), KEY), here, 0)
    answer = first.take("1/0/up/0", 20.0)
    assert answer is not None
    assert json.loads(answer["line"]) == {"error": "it did not end within 0.2 s"}
    assert first.take("1/0/up/1", 20.0) == {"ended": 1}
    session.end()
