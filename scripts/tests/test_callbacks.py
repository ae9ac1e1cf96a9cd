"""Step times that trainings of others leave for a history; with the real libraries, if there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.callbacks import StepTimes
from gpulift.gate import history
from gpulift.ground.errors import OK

pytestmark = pytest.mark.world


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of no repository, on rank 0."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


class Clock:
    """Moves on by what a step takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("gpulift.callbacks.time.perf_counter", lambda: self.now_s)

    def train(self, times: StepTimes, took_s: list[float]) -> None:
        for each in took_s:
            self.now_s += each
            times.step()
        times.close()


def test_a_loop_leaves_the_mean_of_the_steps_after_the_first(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, times = Clock(monkeypatch), StepTimes("train.py/step", skip=2)
    clock.train(times, [9.0, 9.0, 0.25, 0.75])
    clock.train(times, [9.0, 9.0, 1.0])
    points = history.read(place / "gpulift-history")
    assert [point.value for point in points] == [0.5, 1.0]
    assert {(point.row, point.unit, point.machine) for point in points} == {
        ("train.py/step", "s", "cpu")
    }
    assert cli.main(["history", "show"]) == OK
    assert "train.py/step" in capsys.readouterr().out


def test_a_point_names_its_commit(place: Path) -> None:
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"]):
        user = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *user, *words], check=True)
    times = StepTimes("a", skip=1)
    times.step()
    times.step()
    times.close()
    assert re.fullmatch("[0-9a-f]{10}", history.read(place / "gpulift-history")[0].commit)


@pytest.mark.parametrize(
    ("rank", "steps", "said"), [("1", 9, ""), ("0", 2, "no step after the first 2")]
)
def test_other_ranks_and_short_trainings_leave_nothing(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    steps: int,
    said: str,
) -> None:
    monkeypatch.setenv("RANK", rank)
    Clock(monkeypatch).train(StepTimes("a", skip=2), [1.0] * steps)
    assert said in capsys.readouterr().err
    assert not (place / "gpulift-history").exists()


@pytest.mark.parametrize(("row", "skip"), [("", 10), ("a", 0)])
def test_a_row_without_a_name_and_a_first_step_that_counts_are_refused(row: str, skip: int) -> None:
    with pytest.raises(ValueError, match="a row has a name"):
        StepTimes(row, skip=skip)


def the_point(place: Path) -> dict[str, Any]:
    (line,) = (place / "gpulift-history" / "history.jsonl").read_text("utf-8").splitlines()
    point: dict[str, Any] = json.loads(line)
    return point


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_hugging_faces_trainer_calls_it_each_step(place: Path) -> None:
    pytest.importorskip(
        "accelerate", reason="accelerate, which transformers' Trainer needs, is missing"
    )
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=8,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
        )
    )
    rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.tensor(0)}] * 12
    given = transformers.TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=2,
        num_train_epochs=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    times = StepTimes("bert/step", skip=3)
    trainer = transformers.Trainer(
        model, given, train_dataset=rows, callbacks=[times.for_transformers()]
    )
    trainer.train()
    assert the_point(place)["value"] > 0
    assert (trainer.state.global_step, times.steps) == (6, 0)


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_lightnings_trainer_calls_it_each_batch(place: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is missing")
    torch = pytest.importorskip("torch")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    times = StepTimes("linear/step", skip=3)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[times.for_lightning()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(6, 2)))
    assert the_point(place)["row"] == "linear/step"
    assert (trainer.global_step, times.steps) == (6, 0)
