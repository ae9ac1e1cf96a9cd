"""Trains a convolutional net on JPEG images, in FP32 with SGD."""

import argparse
import io
import time

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULTS = "slow_decoding one_worker pageable item fp32 small_batch optimizer_loop synchronize"
CLASSES = 10


class Images(Dataset):
    """Images of some pixels a side out of JPEG files of others."""

    def __init__(self, side: int, pixels: int) -> None:
        self.pixels = pixels
        draw = np.random.default_rng(1)
        self.files = []
        for _ in range(64):
            file = io.BytesIO()
            noise = Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            noise.resize((side, side)).save(file, "JPEG")
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index % len(self.files)]))
        pixels = np.array(image.resize((self.pixels, self.pixels)), dtype=np.float32)
        return torch.from_numpy(pixels).permute(2, 0, 1) / 255, index % CLASSES


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--size", choices=["small", "large"], default="large")
    parser.add_argument("--plant", choices=FAULTS.split())
    options = parser.parse_args()
    large, fault = options.size == "large", options.plant
    workers, batch, side, pixels = (12, 128, 192, 160) if large else (1, 8, 384, 64)

    torch.manual_seed(1)
    if not large:
        torch.set_num_threads(1)  # the other core decodes
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fault != "fp32"
    loader = DataLoader(
        Images(960 if fault == "slow_decoding" else side, pixels),
        batch // 2 if fault == "small_batch" else batch,
        shuffle=True,
        num_workers=0 if fault == "one_worker" else workers,
        pin_memory=device.type == "cuda" and fault != "pageable",
        drop_last=True,
    )
    build = torchvision.models.resnet50 if large else torchvision.models.shufflenet_v2_x0_5
    model = build(num_classes=CLASSES).to(device)
    criterion = nn.CrossEntropyLoss()
    looped = fault == "optimizer_loop"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=not looped)

    step, times = 0, []
    while step < options.steps:
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            loss = criterion(model(images), labels.to(device, non_blocking=True))
            if fault == "item" and loss.item() != loss.item():
                raise SystemExit("the loss is not a number")
            optimizer.zero_grad()
            loss.backward()
            if fault == "item":
                loss.item()
            optimizer.step()
            if fault == "synchronize":
                synchronize()
            step += 1
            if step in (options.steps // 2, options.steps):
                synchronize()
                times.append(time.perf_counter())
            if step == options.steps:
                break
    print(f"steps {step - step // 2} seconds {times[-1] - times[0]:.6f}")


if __name__ == "__main__":
    main()
