"""A ResNet on folders of images, one folder a class, under DDP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image, ImageOps
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from trainyard_watch import watch

SIZE = 32


class ImageFolder(Dataset):
    """Pairs of image and class; torchvision's ImageFolder reads the same layout.

    `classes` are those of the model, in its order; by default the folders' names.
    """

    def __init__(self, folder: Path, classes: list[str] | None = None) -> None:
        found = sorted(path.name for path in folder.iterdir() if path.is_dir())
        self.classes = found if classes is None else classes
        if unknown := [name for name in found if name not in self.classes]:
            raise ValueError(
                f"{folder} has folders of unknown classes: {', '.join(unknown)}; "
                f"allowed: {', '.join(self.classes)}"
            )
        self.files = [
            (path, self.classes.index(name))
            for name in found
            for path in sorted((folder / name).glob("*"))
        ]
        if not self.files:
            raise ValueError(f"{folder} has no image; allowed: one folder of images for each class")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        path, label = self.files[number]
        pixels = np.asarray(read_rgb(path).resize((SIZE, SIZE)), dtype=np.float32)
        return torch.from_numpy(pixels / 255).permute(2, 0, 1), label


def read_rgb(path: Path) -> Image.Image:
    """Return an image upright, with 8 bits a color; Pillow's own conversion cuts 16 bits off.

    Raises:
        ValueError: the range of the pixels is not known.
    """
    with Image.open(path) as stored:
        is_16_bit = stored.mode.startswith("I;16") or (
            stored.mode == "I" and stored.format == "PNG"
        )
        image = ImageOps.exif_transpose(stored)
    if is_16_bit:
        image = Image.fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
    elif image.mode in {"I", "F"}:
        raise ValueError(
            f"{path} has pixels of mode {image.mode}, whose range is not known; "
            "allowed: 8 or 16 bits a color; convert the image"
        )
    return image.convert("RGB")


class ConvolutionBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        )
        self.second = nn.Sequential(
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        )
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.shortcut(x))


def resnet(num_classes: int) -> nn.Module:
    widths = (16, 32, 64)
    blocks = [ConvolutionBlock(before, after, 2) for before, after in zip((3, *widths), widths)]
    return nn.Sequential(
        *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], num_classes)
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    options, _ = parser.parse_known_args()

    is_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if is_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_gpu else torch.device("cpu")
    data = ImageFolder(Path(os.environ["SM_CHANNEL_TRAIN"]))
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    torch.manual_seed(0)
    bare = resnet(len(data.classes)).to(device)
    model = DistributedDataParallel(bare)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.1, total_steps=options.epochs * len(loader)
    )
    states = {"model": bare, "optimizer": optimizer, "schedule": schedule}
    with watch(
        model,
        optimizer,
        max_steps=schedule.total_steps,
        global_batch_size=16 * dist.get_world_size(),
    ) as run:
        if saved := run.resume():
            for name, each in states.items():
                each.load_state_dict(saved[name])
        for epoch in range(run.num_steps // len(loader), options.epochs):
            sampler.set_epoch(epoch)
            for images, labels in run.batches(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                schedule.step()
                run.step(loss=loss, epoch=epoch)
            run.checkpoint({name: each.state_dict() for name, each in states.items()})
            if run.is_stopping:
                break
    if dist.get_rank() == 0:
        torch.save(
            {"classes": data.classes, "weights": bare.state_dict()},
            Path(os.environ["SM_MODEL_DIR"]) / "model.pt",
        )
    del model, bare, states
    dist.destroy_process_group()
    return run.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
