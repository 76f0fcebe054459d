"""Evaluation script of a trained model on the test split, for a processing job.

- Input: `<base>/processing/input/{model/model.tar.gz,test/,index/index.json}`. `<base>` is --base-dir, by
  default SAGEMAKER_BASE_DIR or /opt/ml.
- Output: `<base>/processing/output/evaluation/evaluation.json`.
- Processes: a single one, or the ranks of one instance under torchrun. Each rank reads its own samples and has the
  whole model (`--layout whole`) or a shard of it (`--layout shards`).
- Exit codes: `0`: the model is evaluated. `1`: the evaluation failed; the reason is on stderr, in
  `<base>/output/message` (a processing job's ExitMessage) and in `<base>/output/failure`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from trainer.artifacts import ARCHIVE, read_model, unpack
from trainer.data.loader import evaluation_batches
from trainer.data.mixture import EvaluatedPart, evaluated_parts
from trainer.data.shard_index import ChannelIndex
from trainer.evaluation import combine, evaluate
from trainer.failure import end_process, report_failure
from trainer.models.gpt import GPT
from trainer.precision import DTYPES, Precision
from trainer.tasks import Task, open_splits
from trainer.test_split import describe, write_report
from trainyard_watch.distributed import Ranks, joined_ranks
from trainyard_watch.environment import BASE_VARIABLE, DEFAULT_BASE_DIR, available_cpus
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


log = logging.getLogger("evaluate")
TOKENS_PER_BATCH = 8192
TIMEOUT_S = 7200.0
"""Default of --timeout-s: seconds that ranks wait for the rank that unpacks the archive and checks the shards."""
LAYOUTS = ("whole", "shards")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the evaluation; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    options = read_options(argv)
    output = options.base_dir / "output"
    try:
        with joined_ranks(os.environ, timeout_s=options.timeout_s) as ranks:
            # A vCPU is half a core, and two threads on one core are not faster than one.
            cpus = available_cpus() // (2 * ranks.local_world_size)
            torch.set_num_threads(options.num_threads or max(1, cpus))
            run(options, ranks)
    except Exception as error:  # noqa: BLE001 the process boundary
        report_failure(error, output / "failure", output / "message")
        if dist.is_initialized():
            end_process(1)
        return 1
    return 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Measure a trained model on the test split.")
    base_dir = Path(os.environ.get(BASE_VARIABLE, DEFAULT_BASE_DIR))
    parser.add_argument("--base-dir", type=Path, default=base_dir)
    parser.add_argument("--split", default="test", help="the split of the index that is measured")
    parser.add_argument(
        "--tokens-per-batch",
        type=int,
        default=TOKENS_PER_BATCH,
        help="tokens (for a table: rows) of a forward pass; a longer sample is a batch of one",
    )
    parser.add_argument(
        "--max-samples", type=int, default=0, help="0 = all; otherwise evenly spread"
    )
    parser.add_argument("--num-threads", type=int, default=0, help="0 = half the processors")
    parser.add_argument(
        "--precision",
        choices=tuple(DTYPES),
        help="precision of matrix products (default: the training's)",
    )
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default=LAYOUTS[0],
        help="the whole model on each rank, or a shard of it",
    )
    parser.add_argument(
        "--timeout-s", type=float, default=TIMEOUT_S, help="seconds that ranks wait for each other"
    )
    return parser.parse_args(argv)


def run(options: argparse.Namespace, ranks: Ranks) -> None:
    """Load the model, evaluate it, and write the report from rank 0."""
    volume = options.base_dir / "processing"  # the job's volume_size counts below it
    inputs = volume / "input"
    with opened(inputs / "model", ranks, volume=volume) as folder:
        with ranks.all_or_none():
            model, task, content = read_model(folder)
            index = ChannelIndex.load(inputs / "index", may_be_mixture=True)
            channels = {options.split: inputs / options.split}
            (samples,) = open_splits(
                task, index, channels, (options.split,), verify=ranks.local_rank == 0
            )
        trained = (content.get("hyperparameters") or {}).get("precision")
        name = options.precision or (trained if trained in DTYPES else "fp32")
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        model, precision = placed(model, ranks, precision=name, layout=options.layout)
        parts = evaluated_parts(samples, options.max_samples)
        num_samples = sum(part.num_samples for part in parts)
        if num_samples < len(samples):
            log.warning("measuring %d of %d samples: --max-samples", num_samples, len(samples))
        results = [
            evaluate(
                task,
                model,
                batches_of(options, part, task, model, ranks),
                precision=precision,
                ranks=ranks,
            )
            for part in parts
        ]
    if not ranks.is_main:
        return
    kept = ("config", "step", "stopped_by", "validation_loss")
    report = describe(
        combine(parts, results),
        task=task,
        index=index,
        split=options.split,
        num_samples=num_samples,
        num_split_samples=len(samples),
        measured={
            "place": "processing",
            "num_ranks": ranks.world_size,
            "layout": options.layout,
            "precision": name,
        },
        model={"num_parameters": num_parameters, **{key: content.get(key) for key in kept}},
    )
    report["trained_on_fingerprint"] = content.get("data_fingerprint")
    if report["trained_on_fingerprint"] != index.fingerprint:
        log.warning(
            "the model was trained on the data set %s, but this is the data set %s",
            report["trained_on_fingerprint"],
            index.fingerprint,
        )
    write_report(options.base_dir / "processing" / "output" / "evaluation", report)
    log.info("evaluation: %s", json.dumps(report["metrics"]))


def placed(
    model: nn.Module, ranks: Ranks, *, precision: str, layout: str
) -> tuple[nn.Module, Precision]:
    """Return the model on the device, and the precision of its forward pass.

    Layout `whole` keeps float32 weights and casts the matrix products. Layout `shards` casts the weights themselves,
    as FSDP does in a training. float32 matrix products may use TF32 on GPUs.
    """
    if ranks.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    if layout == "shards" and ranks.world_size > 1:
        return (
            shard_frozen(model, ranks, dtype=DTYPES[precision]),
            Precision.of("fp32", ranks.device),
        )
    model.requires_grad_(requires_grad=False)
    return model.to(ranks.device), Precision.of(precision, ranks.device)


def shard_frozen(model: nn.Module, ranks: Ranks, *, dtype: torch.dtype) -> nn.Module:
    """Return the model in shards of `dtype`; all ranks must run it equally often.

    As in an FSDP training of the same precision, parameters are in `dtype`, and norms are computed in float32. The
    layers are cast and sharded one by one, so a rank has at most one whole layer in memory in addition to its shards.
    """
    mesh = init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=("dp_shard",))
    for layer in model.blocks if isinstance(model, GPT) else ():
        fully_shard(_cast(layer, dtype), mesh=mesh)
    return fully_shard(_cast(model, dtype), mesh=mesh)


def _cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Freeze all parameters, and cast those that are not sharded yet; buffers keep their dtype."""
    for parameter in module.parameters():
        parameter.requires_grad_(requires_grad=False)
        if not isinstance(parameter, DTensor):
            parameter.data = parameter.data.to(dtype)
    return module


def batches_of(
    options: argparse.Namespace,
    part: EvaluatedPart,
    task: Task,
    model: nn.Module,
    ranks: Ranks,
) -> Iterator[Any]:
    """Yield this rank's batches.

    With layout `shards` all ranks must run the model equally often: a rank with fewer batches than rank 0 runs it once
    more and discards the outputs.
    """
    size = max(1, options.tokens_per_batch // task.units_per_sample)
    yield from evaluation_batches(
        part.samples,
        num_samples=part.num_samples,
        batch_size=size,
        rank=ranks.rank,
        world_size=ranks.world_size,
        device=ranks.device,
    )
    most, own = (
        -(-len(range(rank, part.num_samples, ranks.world_size)) // size) for rank in (0, ranks.rank)
    )
    if options.layout == "shards" and own < most:
        spare = tuple(each.to(ranks.device) for each in part.samples[torch.arange(1)])
        task.outputs(model, spare)


@contextmanager
def opened(folder: Path, ranks: Ranks, *, volume: Path) -> Iterator[Path]:
    """Yield a folder with the model's files: the archive's content, or `folder` if it is unpacked already.

    Local rank 0 unpacks the archive for all ranks, to a temporary folder in `volume`.

    Raises:
        DataError: there is neither an archive nor an unpacked model, or unpacking failed. All ranks raise it.
    """
    with tempfile.TemporaryDirectory(dir=volume) as scratch:
        place = None
        with ranks.all_or_none():
            if ranks.local_rank == 0:
                place = unpacked(folder, Path(scratch))
        yield Path(ranks.broadcast(place))
        ranks.barrier()  # the files stay until the last rank has read its weights


def unpacked(folder: Path, scratch: Path) -> Path:
    """Return a folder with the model's files: the archive's content, or `folder` if it is unpacked already.

    Raises:
        DataError: there is neither an archive nor an unpacked model, or unpacking failed.
    """
    archive = folder / ARCHIVE
    if (folder / "model.json").is_file():
        return folder
    if not archive.is_file():
        message = (
            f"{archive} is missing; give the job an input 'model' with the S3 URI of model.tar.gz"
        )
        raise DataError(message)
    unpack(archive, scratch)
    return scratch


if __name__ == "__main__":
    sys.exit(main())
