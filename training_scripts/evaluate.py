"""Measure a trained model on the test split: the script of the evaluation's processing job.

Reads `<base>/processing/input/{model/model.tar.gz,test/,index/index.json}` and writes
`<base>/processing/output/evaluation/evaluation.json`; `<base>` is --base-dir, else
SAGEMAKER_BASE_DIR, else /opt/ml. One process. Exit codes: 0 measured; 1 failed, with the reason on
stderr, in `<base>/output/message` (a processing job's ExitMessage) and `<base>/output/failure`.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer.artifacts import read_model
from trainer.data.loader import evaluation_batches
from trainer.data.shard_index import ShardIndex
from trainer.distributed import Ranks
from trainer.environment import DEFAULT_BASE_DIR, available_cpus
from trainer.errors import DataError
from trainer.evaluation import Evaluation, evaluate
from trainer.failure import report_failure
from trainer.precision import Precision
from trainer.tasks import open_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("evaluate")
MAX_EXPONENT = 700.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the evaluation; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    options = read_options(argv)
    # A vCPU is half a core: two threads on one core only wait for each other.
    torch.set_num_threads(options.num_threads or max(1, available_cpus() // 2))
    try:
        run(options)
    except Exception as error:  # noqa: BLE001 the process boundary
        output = options.base_dir / "output"
        report_failure(error, output / "failure", output / "message")
        return 1
    return 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Measure a trained model on the test split.")
    base_dir = Path(os.environ.get("SAGEMAKER_BASE_DIR", DEFAULT_BASE_DIR))
    parser.add_argument("--base-dir", type=Path, default=base_dir)
    parser.add_argument("--split", default="test", help="the split of the index that is measured")
    parser.add_argument("--batch-size", type=int, default=16, help="samples of a forward pass")
    parser.add_argument("--max-samples", type=int, default=0, help="0 = all, else spread evenly")
    parser.add_argument("--num-threads", type=int, default=0, help="0 = half the processors")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> None:
    """Load, measure and write."""
    inputs = options.base_dir / "processing" / "input"
    ranks = Ranks(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    with tempfile.TemporaryDirectory() as scratch:
        model, task, content = read_model(unpacked(inputs / "model", Path(scratch)))
    index = ShardIndex.load(inputs / "index")
    channels = {options.split: inputs / options.split}
    (samples,) = open_splits(task, index, channels, (options.split,), verify=True)
    num_samples = min(options.max_samples or len(samples), len(samples))
    batches = evaluation_batches(
        samples, num_samples=num_samples, batch_size=options.batch_size, device=ranks.device
    )
    precision = Precision.of(options.precision, ranks.device)
    result = evaluate(task, model.to(ranks.device), batches, precision=precision, ranks=ranks)
    report = describe(result, index=index, split=options.split, num_samples=num_samples)
    report["unit"] = task.unit
    report["model"] = {
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        **{key: content.get(key) for key in ("config", "step", "stopped_by", "validation_loss")},
    }
    report["trained_on_fingerprint"] = content.get("data_fingerprint")
    if report["trained_on_fingerprint"] != index.fingerprint:
        log.warning(
            "the model was trained on data %s, this is %s",
            report["trained_on_fingerprint"],
            index.fingerprint,
        )
    folder = options.base_dir / "processing" / "output" / "evaluation"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    log.info("evaluation: %s", json.dumps(report["metrics"]))


def unpacked(folder: Path, scratch: Path) -> Path:
    """Return a folder with the model's files: the archive's content, or `folder` where it is open.

    Raises:
        DataError: there is no archive and no model, or the archive is damaged.
    """
    archive = folder / "model.tar.gz"
    if (folder / "model.json").is_file():
        return folder
    if not archive.is_file():
        message = (
            f"{archive} is missing; give the job an input 'model' with the S3 URI of model.tar.gz"
        )
        raise DataError(message)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{archive} cannot be unpacked ({error}); upload it again") from error
    return scratch


def describe(
    result: Evaluation, *, index: ShardIndex, split: str, num_samples: int
) -> dict[str, Any]:
    """Return the report's content, without what it says of the model."""
    metrics: dict[str, float | None] = {"test_loss": result.loss}
    if index.kind == "tokens":
        metrics["test_perplexity"] = math.exp(min(result.loss, MAX_EXPONENT))
        metrics["unigram_loss"] = index.unigram_loss
    if result.accuracy is not None:
        metrics["test_accuracy"] = result.accuracy
    entry = index.split(split)
    return {
        "metrics": metrics,
        "split": split,
        "num_tokens": result.num_units if index.kind == "tokens" else None,
        "num_rows": entry["num_rows"],
        "num_samples": num_samples,
        "data_fingerprint": index.fingerprint,
    }


if __name__ == "__main__":
    sys.exit(main())
