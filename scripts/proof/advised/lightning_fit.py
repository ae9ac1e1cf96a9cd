"""Trains an image classifier with Lightning."""

import argparse
import io
import logging
import sys
import time
import warnings

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

try:
    import lightning
except ImportError as error:
    print(f"needs the package {error.name}: pip install lightning", file=sys.stderr)
    sys.exit(3)

FAULTS = "slow_decoding one_worker item fp32 small_batch optimizer_loop synchronize"


class Photos(Dataset):
    """Crops, flipped at random, out of photos in PNG files of that many pixels a side."""

    def __init__(self, side: int, crop: int) -> None:
        ramp = np.add.outer(np.arange(side), np.arange(side))
        photo = np.stack([ramp % 251, ramp % 83, ramp % 7], axis=2).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(photo).save(file, "PNG")
        self.file, self.crop = file.getvalue(), crop

    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        photo = torch.from_numpy(np.array(Image.open(io.BytesIO(self.file))))
        top, left = torch.randint(photo.size(0) - self.crop, (2,)).tolist()
        pixels = photo[top : top + self.crop, left : left + self.crop].permute(2, 0, 1) / 255
        return (pixels.flip(2) if torch.rand(()) < 0.5 else pixels), index % 10


class Classifier(lightning.LightningModule):
    def __init__(self, model: torch.nn.Module, fault: str) -> None:
        super().__init__()
        self.model, self.fault, self.losses = model, fault, []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        images, labels = batch
        loss = functional.cross_entropy(self.model(images), labels)
        if self.fault == "item":
            self.losses.append(loss.item())
            self.log("loss", loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        looped = self.fault == "optimizer_loop"
        return torch.optim.AdamW(self.parameters(), lr=1e-4, foreach=not looped)


class Clock(lightning.Callback):
    """Notes when half of the steps were done, and all."""

    def __init__(self, steps: int, fault: str) -> None:
        self.ends, self.fault, self.times = (steps // 2, steps), fault, []

    def on_train_batch_end(self, trainer: lightning.Trainer, *more: object) -> None:
        ends = trainer.global_step in self.ends
        if torch.cuda.is_available() and (ends or self.fault == "synchronize"):
            torch.cuda.synchronize()
        if ends:
            self.times.append(time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--size", choices=["small", "large"], default="large")
    parser.add_argument("--plant", choices=FAULTS.split())
    options = parser.parse_args()
    large, fault = options.size == "large", options.plant
    workers, batch, side, crop = (12, 128, 256, 224) if large else (1, 4, 512, 64)
    slow_side = 1024 if large else 1536

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(1, verbose=False)
    if not large:
        torch.set_num_threads(1)  # the other core decodes
    loader = DataLoader(
        Photos(slow_side if fault == "slow_decoding" else side, crop),
        batch // 2 if fault == "small_batch" else batch,
        shuffle=True,
        num_workers=0 if fault == "one_worker" else workers,
        pin_memory=torch.cuda.is_available(),
    )
    build = torchvision.models.vit_b_16 if large else torchvision.models.squeezenet1_1
    clock = Clock(options.steps, fault)
    halved = large and torch.cuda.is_available() and fault != "fp32"
    trainer = lightning.Trainer(
        max_steps=options.steps,
        precision="bf16-mixed" if halved else "32-true",
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(build(num_classes=10), fault), loader)
    steps = options.steps - options.steps // 2
    print(f"steps {steps} seconds {clock.times[-1] - clock.times[0]:.6f}")


if __name__ == "__main__":
    main()
