"""Program of a sharding job's container: it writes one instance's part of each data set.

    python3 -m trainyard_airflow.hooks.shard_part --plan s3://bucket/.../parts/plan.json --region eu-west-1

Every instance lists the source, reads the files whose names hash to its number, and writes its shards
directly to S3, without a copy of the source on the volume. `jobs.sharding_job` uploads this module and
the modules that it imports. This module does not import Airflow.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

from trainyard.errors import ContractError, DataError, TrainingRunError
from trainyard.sharding.listing import list_files
from trainyard.sharding.parts import files_of_part, write_part
from trainyard.sharding.plan import DatasetPlan, finished_index
from trainyard.sharding.settings import Source
from trainyard.sharding.source_digest import fingerprint
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
from trainyard_airflow.hooks.encryption import encrypt_writes
from trainyard_airflow.hooks.retries import patient_config

if TYPE_CHECKING:
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.source_files import SourceFile

log = logging.getLogger(__name__)

_MOST_REASON_CHARACTERS = 1024


def main(arguments: list[str] | None = None) -> int:
    """Write this instance's parts, and return the exit code.

    The code is 0, or 1 after an error, whose text is stored as the ExitMessage.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # before numpy is loaded: its threads would spin
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    # SageMaker sets AWS_REGION, which boto3 does not read. Without a region it sends requests to us-east-1.
    client = boto3.client("s3", region_name=options.region, config=patient_config(None))
    encrypt_writes(client, options.kms_key_id)
    try:
        for plan_uri in options.plan:
            write_own_part(
                S3DatasetObjects(client),
                plan_uri=plan_uri,
                max_source_bytes=options.max_source_bytes,
                base=base,
            )
    except TrainingRunError as error:
        _leave_reason(f"{type(error).__name__}: {error}", base)
        return 1
    except Exception as error:  # noqa: BLE001  # told as the job's reason, whatever it is
        traceback.print_exception(error)
        _leave_reason(f"{type(error).__name__}: {error}", base)
        return 1
    return 0


def write_own_part(objects: Objects, *, plan_uri: str, max_source_bytes: int, base: Path) -> None:
    """Write the part of this instance, unless the data set is complete already.

    Args:
        objects: store of the plan, the source and the shards.
        plan_uri: the plan of the data set.
        max_source_bytes: the plan's limit on source bytes; 0 = no limit.
        base: the container's `/opt/ml`, with the job's resource configuration and space for temporary files.
    """  # noqa: DOC501 - a file that another process deleted
    with objects.open(plan_uri) as stream:
        plan = DatasetPlan.from_json(stream.read(), uri=plan_uri)
    if finished_index(plan, objects) is not None:
        log.info("data set is already at %s, nothing to do", plan.uri)
        return
    source = Source(
        uri=plan.source["uri"], data_format=plan.data_format, max_source_bytes=max_source_bytes
    )
    _, files = list_files(source, objects)
    _check_unchanged(plan, files)
    part = _this_part(base / "config" / "resourceconfig.json", num_parts=plan.num_parts)
    own = files_of_part(files, part=part, num_parts=plan.num_parts)
    log.info("part %d of %d: %d of %d files", part, plan.num_parts, len(own), len(files))
    try:
        write_part(plan, own, objects, part=part, work_dir=base / "processing" / "scratch")
    except FileNotFoundError:
        # Another job may have completed the data set, and its merge deleted the drafts of both jobs.
        if finished_index(plan, objects) is None:
            raise
        log.info("data set was completed at %s by another job", plan.uri)


def _check_unchanged(plan: DatasetPlan, files: list[SourceFile]) -> None:
    """Check that the files are those of the plan, so that all instances read the same source.

    Raises:
        DataError: the source has changed.
    """
    found = fingerprint(files, checksums=plan.settings.checksums)
    if found != plan.source["fingerprint"]:
        raise DataError(
            "the source has changed since the data set was planned",
            job_name="sharding",
            where=plan.source["uri"],
            got=f"fingerprint {found[:16]}, {len(files)} files",
            allowed=f"fingerprint {plan.source['fingerprint'][:16]}, {plan.source['files']} files",
            next_step="make sure that no process writes to the source, then start a new run",
        )


def _this_part(resource_config: Path, *, num_parts: int) -> int:
    """Return this instance's index among the hosts of the job.

    Raises:
        ContractError: the number of hosts differs from the number of parts.
    """
    config = json.loads(resource_config.read_text())
    hosts = sorted(config["hosts"], key=lambda host: int(host.rpartition("-")[2]))
    if len(hosts) != num_parts:
        raise ContractError(
            "the job's number of instances differs from the data set's number of parts",
            got=len(hosts),
            allowed=str(num_parts),
            next_step=f"shard the data set again, on {num_parts} instances",
        )
    return hosts.index(config["current_host"])


def _leave_reason(text: str, base: Path) -> None:
    """Print `text`, the reason of the job's failure, as one line, and store the line as the ExitMessage.

    The lines of the text are joined because services quote only one line. In the ExitMessage, the joined line
    is cut to `_MOST_REASON_CHARACTERS` characters.
    """
    reason = "; ".join(line.strip() for line in text.splitlines())
    sys.stderr.write(f"{reason}\n")
    try:
        (base / "output").mkdir(parents=True, exist_ok=True)
        (base / "output" / "message").write_text(reason[:_MOST_REASON_CHARACTERS])
    except OSError as problem:
        log.warning("the reason could not be written: %s", problem)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shard_part", description="Write one part of a data set.")
    parser.add_argument(
        "--plan",
        required=True,
        action="append",
        help="s3:// address of a plan; once for each data set",
    )
    parser.add_argument("--region", required=True, help="region of the job and its buckets")
    parser.add_argument(
        "--max-source-bytes",
        type=int,
        default=0,
        help="limit of the source in bytes (default: 0, no limit)",
    )
    parser.add_argument(
        "--kms-key-id", help="KMS key that encrypts the shards (default: the bucket's key)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
