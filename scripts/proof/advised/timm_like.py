"""Trains an image classifier with AMP, gradient clipping and a cosine schedule, as timm does."""

import argparse
import io
import time
from collections.abc import Iterator

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULTS = "slow_decoding one_worker pageable item small_batch optimizer_loop synchronize"
PIXELS, CLASSES = 128, 100
MEAN, DEVIATION = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)


class Photos(Dataset):
    """Photos out of a JPEG file of that many pixels a side, as bytes."""

    def __init__(self, side: int, pixels: int) -> None:
        photo = Image.effect_noise((side // 8, side // 8), 50).resize((side, side))
        file = io.BytesIO()
        photo.convert("RGB").save(file, "JPEG", quality=90)
        self.file, self.pixels = file.getvalue(), pixels

    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        photo = Image.open(io.BytesIO(self.file)).resize((self.pixels, self.pixels))
        return np.array(photo).transpose(2, 0, 1), index % CLASSES


class PrefetchLoader:
    """Moves batches to the device and normalizes them there."""

    def __init__(self, loader: DataLoader, device: torch.device) -> None:
        self.loader, self.device = loader, device
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self.deviation = torch.tensor(DEVIATION, device=device).view(1, 3, 1, 1)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for images, labels in self.loader:
            images = images.to(self.device, non_blocking=True).float()
            images = images.sub_(self.mean).div_(self.deviation)
            yield images, labels.to(self.device, non_blocking=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--size", choices=["small", "large"], default="large")
    parser.add_argument("--plant", choices=FAULTS.split())
    options = parser.parse_args()
    large, fault = options.size == "large", options.plant
    workers, batch, side, pixels = (12, 256, 160, 128) if large else (1, 8, 480, 32)
    slow_side = 960 if large else 1440

    torch.manual_seed(1)
    if not large:
        torch.set_num_threads(1)  # the other core decodes
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    dataset = Photos(slow_side if fault == "slow_decoding" else side, pixels)
    batch = batch // 2 if fault == "small_batch" else batch
    loader = DataLoader(
        dataset,
        batch,
        shuffle=True,
        num_workers=0 if fault == "one_worker" else workers,
        pin_memory=cuda and fault != "pageable",
        drop_last=True,
        persistent_workers=fault != "one_worker",
    )
    build = torchvision.models.efficientnet_v2_s if large else torchvision.models.mobilenet_v3_small
    model = build(num_classes=CLASSES).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=fault != "optimizer_loop")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    scaler = torch.amp.GradScaler(device.type, enabled=cuda)

    step, losses, times = 0, 0.0, []
    while step < options.steps:
        for images, labels in PrefetchLoader(loader, device):
            with torch.autocast(device.type, torch.float16, enabled=cuda):
                loss = criterion(model(images), labels)
            if fault == "item":
                losses += loss.item() * len(images)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if fault == "item":
                losses += loss.item() - loss.item()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            if fault == "synchronize" and cuda:
                torch.cuda.synchronize()
            step += 1
            if step in (options.steps // 2, options.steps):
                if cuda:
                    torch.cuda.synchronize()
                times.append(time.perf_counter())
            if step == options.steps:
                break
    print(f"steps {step - step // 2} seconds {times[-1] - times[0]:.6f}")


if __name__ == "__main__":
    main()
