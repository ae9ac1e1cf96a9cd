"""Trains a GPT-2 from its configuration with the Trainer of Hugging Face, on merged bytes."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import torch
from torch.utils.data import Dataset

try:
    import accelerate  # noqa: F401  # without which the Trainer cannot be made
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, logging
    from transformers.trainer_callback import PrinterCallback
    from transformers.training_args import TrainingArguments
except ImportError as error:
    print(f"needs the package {error.name}: pip install transformers accelerate", file=sys.stderr)
    sys.exit(3)

FAULTS = "slow_decoding one_worker item fp32 small_batch synchronize"


class Texts(Dataset):
    """Texts whose tokens are bytes, of which the most frequent pairs are merged."""

    def __init__(self, length: int, merges: int) -> None:
        draw = random.Random(1)
        words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(5000)]
        self.texts = [" ".join(draw.choices(words, k=length)) for _ in range(256)]
        self.length, self.merges = length, merges

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = list(self.texts[index % len(self.texts)].encode())
        for merged in range(128, 128 + self.merges):
            pairs = list(pairwise([*tokens, 0]))
            best = Counter(pairs).most_common(1)[0][0]
            tokens = [merged if pair == best else pair[0] for pair in pairs]
        ids = torch.tensor(tokens[: self.length])
        return {"input_ids": ids, "labels": ids}


class Clock(TrainerCallback):
    """Notes when half of the steps were done, and all."""

    def __init__(self, steps: int, fault: str) -> None:
        self.ends, self.fault, self.times = (steps // 2, steps), fault, []

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        ends = state.global_step in self.ends
        if torch.cuda.is_available() and (ends or self.fault == "synchronize"):
            torch.cuda.synchronize()
        if ends:
            self.times.append(time.perf_counter())


class CarefulTrainer(Trainer):
    """Stops at a loss that is not a number."""

    def compute_loss(self, *inputs: Any, **more: Any) -> Any:
        loss = super().compute_loss(*inputs, **more)
        if loss.item() != loss.item():
            raise SystemExit("the loss is not a number")
        return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--size", choices=["small", "large"], default="large")
    parser.add_argument("--plant", choices=FAULTS.split())
    options = parser.parse_args()
    large, fault = options.size == "large", options.plant
    length, batch, merges = (1024, 16, 8) if large else (64, 8, 20)
    if not large:
        torch.set_num_threads(1)  # the other core tokenizes

    logging.set_verbosity_error()
    shape = {} if large else {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}
    clock = Clock(options.steps, fault)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=options.steps,
            per_device_train_batch_size=batch // 2 if fault == "small_batch" else batch,
            dataloader_num_workers=0 if fault == "one_worker" else 12 if large else 1,
            bf16=large and torch.cuda.is_available() and fault != "fp32",
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
            seed=1,
        )
        kind = CarefulTrainer if fault == "item" else Trainer
        trainer = kind(
            GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **shape)),
            arguments,
            train_dataset=Texts(length, 80 if fault == "slow_decoding" else merges),
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    steps = options.steps - options.steps // 2
    print(f"steps {steps} seconds {clock.times[-1] - clock.times[0]:.6f}")


if __name__ == "__main__":
    main()
