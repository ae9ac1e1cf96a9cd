"""References in shared memory: computed once, and never used where they are another's."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpulift_case  # noqa: E402
from gpulift_work import references  # noqa: E402
from gpulift_work.references import DamagedError, Reference, shared_reference  # noqa: E402

HOST = torch.device("cpu")
FORKS = multiprocessing.get_context("fork")
NAMED = {"model": "toy", "seed": 7, "source": "a1"}


@pytest.fixture(name="folder", autouse=True)
def shared_memory(tmp_path: Path) -> Path:
    """Of the case."""
    gpulift_case.begin({"seed": 7, "shared": str(tmp_path)})
    return tmp_path


def made(value: float = 1.0) -> Reference:
    return Reference([4.0, 3.5], [torch.full((2, 3), value), torch.arange(5.0).t()])


def never() -> Reference:
    raise AssertionError("it is there")


def asked(
    compute: Callable[[], Reference], notes: dict[str, str] | None = None, **others: object
) -> Reference:
    return shared_reference(compute, HOST, {} if notes is None else notes, **NAMED | others)


def values(reference: Reference) -> list[Any]:
    return [one.tolist() for one in reference.gradients]


def file_in(folder: Path) -> Path:
    (file,) = folder.glob("*.reference")
    return file


def test_the_second_arm_reads_what_the_first_computed() -> None:
    notes: dict[str, str] = {}
    first, second = asked(made, notes), asked(never, notes)
    assert first.losses == second.losses == [4.0, 3.5]
    assert values(first) == values(second) == values(second) == values(made())
    assert notes == {}
    assert gpulift_case.spent_s()["reference"] > 0


def test_a_gradient_that_is_longer_than_what_passes_at_once_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(references, "STAGED", 4)
    given = [torch.arange(10.0), torch.arange(12.0).view(3, 4).t(), torch.tensor(3.0)]
    first = asked(lambda: Reference([1.0], given))
    assert values(first) == [one.tolist() for one in given]


@pytest.mark.parametrize("other", [{"seed": 8}, {"model": "other"}, {"source": "b2"}])
def test_another_seed_model_or_text_has_another_reference(other: dict[str, Any]) -> None:
    asked(made)
    assert values(asked(lambda: made(2.0), **other)) == values(made(2.0))


def test_so_has_another_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(made)
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert values(asked(lambda: made(2.0))) == values(made(2.0))


def test_a_card_is_another_by_its_uuid_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = (SimpleNamespace(name="H200", uuid=uuid) for uuid in ("a", "a", "b"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: next(cards))
    first, same, other = (references.identity(torch.device("cuda"), {}) for _ in range(3))
    assert first == same != other


def test_a_text_of_any_workload_or_of_the_script_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("references.py", "training.py", "script.py"):
        (tmp_path / name).write_text("STEPS = 5")
    monkeypatch.setattr(references, "__file__", str(tmp_path / "references.py"))
    script = str(tmp_path / "script.py")
    sums = [references.source_of(script)]
    for name in ("training.py", "script.py"):
        (tmp_path / name).write_text("STEPS = 6")
        sums.append(references.source_of(script))
    assert len(set(sums)) == 3


def test_what_another_left_under_this_name_is_not_used(folder: Path) -> None:
    asked(lambda: made(2.0), seed=8)
    stale = file_in(folder)
    asked(made)
    (mine,) = set(folder.glob("*.reference")) - {stale}
    stale.replace(mine)
    assert values(asked(made)) == values(made())


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes() + b"0"),
        lambda file: file.write_bytes(file.read_bytes()[:40]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff\n{}"),
        lambda file: file.write_bytes(b"{}\n"),
        lambda file: file.write_bytes(b"[1]\n"),
    ],
)
def test_what_is_cut_or_no_reference_is_computed_anew(
    folder: Path, damage: Callable[[Path], object]
) -> None:
    asked(made)
    damage(file_in(folder))
    assert values(asked(lambda: made(2.0))) == values(made(2.0))


def test_a_number_that_changed_is_found_and_the_file_goes(folder: Path) -> None:
    asked(made)
    file = file_in(folder)
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)
    given = iter(asked(never).gradients)
    assert next(given).tolist() == values(made())[0]
    with pytest.raises(DamagedError):
        next(given)
    assert values(asked(lambda: made(2.0))) == values(made(2.0))


def test_shared_memory_that_is_too_small_leaves_each_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(folder)._replace(free=64 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    large = Reference([4.0], [torch.zeros(1).expand(1 << 30)])  # 4 GiB
    for _ in range(2):
        notes: dict[str, str] = {}
        assert asked(lambda: large, notes) is large
        assert notes == {"reference": "an arm's own: shared memory is too small"}
    assert not list(folder.glob("*.part")) + list(folder.glob("*.reference"))


def test_so_does_what_fills_up_while_it_is_written(folder: Path) -> None:
    asked(made)
    file = file_in(folder)
    file.unlink()
    file.with_suffix(".part").symlink_to("/dev/full")
    notes: dict[str, str] = {}
    assert values(asked(made, notes)) == values(made())
    assert "too small" in notes["reference"]
    assert [one.suffix for one in folder.iterdir()] == [".lock"]


def test_another_error_is_no_lack_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(references, "write", refuse)
    with pytest.raises(OSError, match="no"):
        asked(made)


def test_without_shared_memory_each_has_its_own_and_says_so() -> None:
    gpulift_case.begin({"seed": 7})
    notes: dict[str, str] = {}
    own = made()
    assert asked(lambda: own, notes) is own
    assert notes == {"reference": "an arm's own: there is no shared memory"}


def test_two_that_want_it_at_once_compute_it_once(folder: Path) -> None:
    computing, other_came = FORKS.Event(), FORKS.Event()
    log = folder / "computed"

    def compute() -> Reference:
        with log.open("a") as out:
            out.write("x")
        computing.set()
        assert other_came.wait(60)
        return made()

    def other() -> None:
        assert computing.wait(60)
        other_came.set()
        assert values(asked(compute)) == values(made())

    processes = [FORKS.Process(target=work) for work in (lambda: asked(compute), other)]
    for one in processes:
        one.start()
    for one in processes:
        one.join(60)
    assert [one.exitcode for one in processes] == [0, 0]
    assert log.read_text() == "x"


def test_one_that_is_killed_while_it_writes_leaves_the_next_to_compute_it(folder: Path) -> None:
    def killed() -> None:
        def die(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        Path.replace = die  # type: ignore[method-assign, assignment]
        asked(lambda: made(2.0))

    process = FORKS.Process(target=killed)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert list(folder.glob("*.part"))
    assert values(asked(made)) == values(made())
    assert not list(folder.glob("*.part"))
