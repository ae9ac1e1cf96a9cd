"""input/tokens: every arm trains on the tokens of its places; what is wrong is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import feeding  # noqa: E402
from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

MANIFEST = manifest(__file__)
ARMS = MANIFEST["arms"]
POINT = {"model": "llama_toy"}
ROWS = 24  # three batches


@pytest.fixture(name="tokens")
def script(monkeypatch: pytest.MonkeyPatch, disk: Path) -> Any:
    """The script with few tokens, of documents that end within rows."""
    module: Any = load(__file__)
    monkeypatch.setattr(module, "ROWS", ROWS)
    monkeypatch.setattr(module, "BATCHES", 2)
    monkeypatch.setattr(module, "LOOKED_BATCHES", 2)
    monkeypatch.setattr(module, "DOCUMENT_TOKENS", 10)
    for where in (module, feeding):
        monkeypatch.setattr(where, "cores", lambda: 4)
    return module


def make(tokens: Any, arm: str) -> Any:
    """An arm; the test is skipped where its library is missing."""
    try:
        return tokens.make(arm, POINT, 7, None)
    except Skip as missing:
        pytest.skip(str(missing))


def window(arm: Any) -> None:
    """As the engine takes one."""
    arm.wake()
    arm.before()
    arm.step()
    arm.synchronize()
    arm.rest()


@pytest.mark.parametrize("arm", [one for one in ARMS if one != "workers_16"])
def test_every_arm_trains_on_the_tokens_of_its_places(tokens: Any, arm: str) -> None:
    found = make(tokens, arm)
    for _ in range(3):
        window(found)
        assert found.error() == 0
    assert (found.items, found.item) == (2 * 8 * 32, "token")
    metrics = found.metrics()
    assert 0 <= metrics["data_wait_share"] < 1
    assert metrics["loader_tokens_per_s"] > 0
    assert metrics["loader_cpu_s_per_token"] > 0
    found.rest()


def test_rows_at_random_places_are_others_in_each_epoch(tokens: Any) -> None:
    corpus = tokens.corpus_of(64, 32, 7)
    places = [corpus.random_place(epoch, 3).start for epoch in range(8)]
    assert len(set(places)) > 4
    assert places == [corpus.random_place(epoch, 3).start for epoch in range(8)]
    assert all(0 <= start < len(corpus.tokens) - 32 for start in places)


def test_documents_of_another_seed_end_at_the_same_places(tokens: Any) -> None:
    first, second = (tokens.corpus_of(64, 32, seed).tokens for seed in (7, 8))
    ends = first == tokens.END
    assert 0 < ends.sum() < len(first)
    assert (ends == (second == tokens.END)).all()
    assert (first != second).any()


def test_positions_begin_anew_behind_each_end(tokens: Any) -> None:
    row = torch.tensor([5, 0, 7, 8, 0, 0, 9, 0])
    assert tokens.positions(row).tolist() == [0, 1, 0, 1, 2, 0, 0]


WRONG: dict[str, Callable[..., Any]] = {
    "positions": lambda row: torch.arange(len(row) - 1),
    "copied": lambda tokens, place, _: torch.from_numpy(tokens[place].astype("int64")) ^ 1,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token_and_positions_that_never_begin_anew_are_found(
    tokens: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tokens, name, WRONG[name])
    found = make(tokens, "packed")
    window(found)
    assert found.error() > 0


@pytest.mark.parametrize("arm", ["packed", "workers_1"])
def test_a_file_that_was_cut_off_fails_the_arm_in_one_line(
    tokens: Any, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    whole = tokens.written

    def cut_off(*given: Any) -> Any:
        file = whole(*given)
        file.write_bytes(file.read_bytes()[:80])
        return file

    monkeypatch.setattr(tokens, "written", cut_off)
    found = make(tokens, arm)
    with pytest.raises(RuntimeError, match=r"the file of tokens ends before it") as raised:
        found.step()
    assert "\n" not in str(raised.value)


def test_more_workers_than_cores_are_a_skip_but_datasets_take_what_is_there(tokens: Any) -> None:
    with pytest.raises(Skip, match="16 workers need as many cores, and there are 4"):
        tokens.make("workers_16", POINT, 7, None)
    assert tokens.workers_of("workers_4") == 4
    assert tokens.workers_of("hf_datasets") == 4
    assert tokens.workers_of("packed") == 0


def test_a_billion_weights_are_not_trained_on_a_processor(tokens: Any) -> None:
    with pytest.raises(Skip, match="llama_1b"):
        tokens.make("memmap", {"model": "llama_1b"}, 7, None)
