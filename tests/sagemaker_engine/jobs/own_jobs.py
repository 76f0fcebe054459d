"""Jobs of a bench that train with Trainyard's own scripts, on a small data set."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sagemaker_engine.jobs.conftest import BUCKET, JobBench, channel

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[3]
RUN = {
    "num_layers": "2", "num_heads": "2", "hidden_size": "32", "sequence_length": "16",
    "global_batch_size": "8", "max_steps": "8", "warmup_steps": "2", "learning_rate": "0.01",
    "log_interval": "1", "eval_interval": "4", "eval_batches": "2", "checkpoint_interval": "2",
}  # fmt: skip
TORCHRUN = {"sagemaker_torch_distributed_enabled": "true", "sagemaker_instance_type": "ml.m5.large"}


def shard_writer() -> ModuleType:
    path = ROOT / "tests/training_scripts/shard_writer.py"
    spec = importlib.util.spec_from_file_location("shard_writer", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put_data(bench: JobBench, folder: Path) -> None:
    """Store a small data set."""
    draw = random.Random(0)  # noqa: S311 data, not secrets
    words = [b"import ", b"return ", b"self.", b"def ", b"None\n", b"    "]
    splits = {
        name: [b"".join(draw.choices(words, k=30)) for _ in range(number)]
        for name, number in (("train", 24), ("validation", 8))
    }
    shard_writer().write_token_dataset(folder, splits, num_shards=2)
    for path in folder.rglob("*.*"):
        bench.objects.put(BUCKET, f"in/{path.relative_to(folder)}", path.read_bytes())


def scripts() -> dict[str, bytes]:
    """Return the content of each file of the training scripts."""
    folder = ROOT / "training_scripts"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


def train(bench: JobBench, name: str, script: str, *, instances: int, **members: Any) -> None:
    """Start a job; `asked` are hyperparameters beside RUN, `image` another than the usual one."""
    asked, image = members.pop("asked", {}), members.pop("image", None)
    bench.train(
        name,
        instances=instances,
        HyperParameters={
            **bench.put_source({**scripts()}),
            "sagemaker_program": script,
            **RUN,
            **asked,
        },
        InputDataConfig=[
            channel(each, f"s3://{BUCKET}/in/{each}") for each in ("train", "validation", "index")
        ],
        algorithm={"TrainingImage": image} if image else {},
        **members,
    )
