"""Small data sets of real shards: the standard library's source, tables, and tables that are not as they should be."""

from __future__ import annotations

import math
import random
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from tests.training_scripts.shard_writer import write_index, write_shard, write_token_dataset

if TYPE_CHECKING:
    from collections.abc import Callable

SPLITS = ("train", "validation", "test")


def source_tokens(root: Path, *, megabytes: float = 0.3) -> Path:
    """Write Python's own source as bytes; every tenth file is for validation, every tenth for the test."""
    splits: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    size = 0
    folder = Path(sysconfig.get_paths()["stdlib"])
    for number, path in enumerate(sorted(folder.glob("*.py"))):
        if size > megabytes * 1e6:
            break
        content = path.read_bytes()
        size += len(content)
        splits[{0: "validation", 1: "test"}.get(number % 10, "train")].append(content)
    return write_token_dataset(root, splits, num_shards=2)


def padded_tokens(root: Path) -> Path:
    """Write documents that are mostly token 0."""
    draw = random.Random(0)  # noqa: S311 data, not secrets
    documents = [bytes(draw.randrange(97, 123) for _ in range(60)) + bytes(140) for _ in range(200)]
    return write_token_dataset(root, dict.fromkeys(SPLITS, documents))


def table(
    root: Path,
    *,
    rows: int = 2000,
    validation_rows: int = 600,
    label: Callable[[random.Random, list[float]], int] | None = None,
    num_classes: int = 4,
) -> Path:
    """Write rows of eight numbers and a class; `label` draws the class, by default from the numbers and some noise."""
    draw = random.Random(1)  # noqa: S311 data, not secrets
    label = label or learnable
    splits = {}
    for split, count in zip(SPLITS, (rows, validation_rows, 100), strict=True):
        features = [[draw.gauss(0, 1) for _ in range(8)] for _ in range(count)]
        columns = {
            f"x{place}": ("float32", [each[place] for each in features]) for place in range(8)
        }
        columns["y"] = ("int32", [label(draw, each) for each in features])
        entry = write_shard(root / split / "shard-00000.bin", columns)
        splits[split] = {"num_rows": count, "shards": [entry | {"rows": count, "first_row": 0}]}
    schema = [
        {"name": f"x{place}", "dtype": "float32", "role": "feature", "mean": 0.0, "std": 1.0}
        for place in range(8)
    ]
    classes = [f"class{number}" for number in range(num_classes)]
    schema.append({"name": "y", "dtype": "int32", "role": "target", "categories": classes})
    return write_index(root, {"kind": "columns", "schema": schema}, splits)


def learnable(draw: random.Random, x: list[float]) -> int:
    """Return one of four classes that follows from the numbers but for some noise."""
    first = math.sin(x[0]) + x[1] * x[2] + 0.3 * draw.gauss(0, 1) > 0
    second = x[3] - x[4] + 0.5 * x[5] + 0.3 * draw.gauss(0, 1) > 0
    return 2 * first + second


def noise(draw: random.Random, x: list[float]) -> int:
    """Return one of four classes, whatever the numbers are."""
    return draw.randrange(4)


def lopsided(draw: random.Random, x: list[float]) -> int:
    """Return the first class for forty rows of forty-one."""
    return 0 if draw.random() < 40 / 41 else learnable(draw, x)
