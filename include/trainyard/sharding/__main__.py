"""Sharding from the command line, and in a processing job's container.

    python -m trainyard.sharding shard --source DATA --output DIR [--settings settings.json]
    python -m trainyard.sharding plan  --source DATA --output DIR --parts 4
    python -m trainyard.sharding part  --plan plan.json --source DIR --output DIR [--part 0] [--all-files]
    python -m trainyard.sharding merge --plan plan.json --output DIR

In a container each instance runs `part`. Source and output are the container's input and output folders, the part's
number comes from `/opt/ml/config/resourceconfig.json`, and SageMaker uploads the output. If the input is
`ShardedByS3Key`, the instance has only its own files: use `--all-files`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path

from trainyard.errors import TrainingRunError
from trainyard.sharding.listing import list_files
from trainyard.sharding.objects import LocalObjects
from trainyard.sharding.plan import DatasetPlan, plan_dataset
from trainyard.sharding.run import shard_dataset
from trainyard.sharding.settings import ShardSettings, Source

RESOURCE_CONFIG = Path("/opt/ml/config/resourceconfig.json")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code, which is 1 after an error."""
    options = _parser().parse_args(arguments)
    # Before numpy is loaded: threads of BLAS would spin beside the work, which calls none of it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        options.run(options)
    except TrainingRunError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _shard(options: argparse.Namespace) -> None:
    objects, destination = _folder_as_store(options.output)
    result = shard_dataset(_source(options), _settings(options), objects, destination=destination)
    sys.stdout.write(f"{options.output / 'datasets' / result.uri.rpartition('/')[2]}\n")


def _plan(options: argparse.Namespace) -> None:
    objects, destination = _folder_as_store(options.output)
    plan, _ = plan_dataset(
        _source(options),
        _settings(options),
        objects,
        destination=destination,
        num_parts=options.parts,
    )
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "plan.json").write_text(plan.to_json())
    sys.stdout.write(f"{options.output / 'plan.json'}\n")


def _part(options: argparse.Namespace) -> None:
    from trainyard.sharding.parts import files_of_part, write_part

    plan, objects = _planned(options)
    part = _this_part() if options.part is None else options.part
    _, files = list_files(Source(uri=options.source, data_format=plan.data_format), objects)
    if not options.all_files:
        files = files_of_part(files, part=part, num_parts=plan.num_parts)
    write_part(plan, files, objects, part=part)


def _merge(options: argparse.Namespace) -> None:
    from trainyard.sharding.merge import merge_parts

    plan, objects = _planned(options)
    merge_parts(plan, objects)
    sys.stdout.write(f"{options.output / 'index' / 'index.json'}\n")


def _planned(options: argparse.Namespace) -> tuple[DatasetPlan, LocalObjects]:
    """Return the plan and the store that contains the output folder. The plan's prefix is this folder."""
    plan = DatasetPlan.from_json(options.plan.read_text(), uri=str(options.plan))
    objects, uri = _folder_as_store(options.output)
    return plan.at(uri), objects


def _folder_as_store(folder: Path) -> tuple[LocalObjects, str]:
    """Return a store rooted at the folder's parent, and the folder's URI in this store: `s3://<folder name>`.

    The store keeps the digests of files in its root, and thus beside the folder and not in it.
    """
    folder = folder.resolve()
    return LocalObjects(folder.parent), f"s3://{folder.name}"


def _source(options: argparse.Namespace) -> Source:
    return Source(uri=options.source, data_format=options.data_format)


def _settings(options: argparse.Namespace) -> ShardSettings:
    return ShardSettings(**json.loads(options.settings.read_text() if options.settings else "{}"))


def _this_part() -> int:
    """Return this instance's index among the hosts of the job."""
    config = json.loads(RESOURCE_CONFIG.read_text())
    return sorted(config["hosts"]).index(config["current_host"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainyard sharding", description="Shard a data set.")
    commands = parser.add_subparsers(required=True)
    for name, run in (("shard", _shard), ("plan", _plan), ("part", _part), ("merge", _merge)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--output", type=Path, required=True)
        if name != "merge":
            command.add_argument("--source", required=True)
        if name in {"shard", "plan"}:
            command.add_argument("--data-format", default="auto")
            command.add_argument("--settings", type=Path, help="JSON of ShardSettings")
        if name in {"part", "merge"}:
            command.add_argument("--plan", type=Path, required=True)
        if name == "plan":
            command.add_argument("--parts", type=int, required=True)
        if name == "part":
            command.add_argument("--part", type=int)
            command.add_argument("--all-files", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
