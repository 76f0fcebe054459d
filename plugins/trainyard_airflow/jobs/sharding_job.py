"""Sharding on several instances: upload of the code, and the processing job that runs it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import trainyard
from trainyard.errors import Finding, SpecError
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard_airflow.jobs.job_code import uploaded_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.cost.cost_cap import CostCap
    from trainyard.sharding.settings import Source
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.jobs.job_code import UploadedCode

_MODULE = "trainyard_airflow.hooks.shard_part"
_OF_LIBRARY = (
    "__init__.py",
    "errors.py",
    "job_status.py",
    "units.py",
    "sagemaker_api/__init__.py",
    "sagemaker_api/failures.py",
    "sagemaker_api/failure_table.py",
    "sagemaker_api/stop_cause.py",
    "sharding/*.py",
)
_OF_PLUGIN = (
    "__init__.py",
    "hooks/__init__.py",
    "hooks/dataset_objects.py",
    "hooks/encryption.py",
    "hooks/object_stream.py",
    "hooks/objects.py",
    "hooks/refusals.py",
    "hooks/retries.py",
    "hooks/shard_part.py",
)
# AWS's PyTorch images have boto3, numpy and pandas, but not all have pyarrow, and none has tokenizers. pip installs
# missing packages; if none is missing, it does nothing and needs no network.
_REQUIREMENTS = ("boto3", "numpy", "pandas", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingJob:
    """Instances and settings of the processing job that shards a data set.

    Without such a job, Airflow's worker shards the data set.

    Attributes:
        role: ARN of the execution role; it reads the source and writes the shards.
        code_location: S3 prefix of the uploaded code.
        image_uri: an image with Python 3.11 or newer; None = AWS's PyTorch image. If the image lacks a required
            package, such as pyarrow or tokenizers, pip installs it. For this, the instances need access to a
            package index.
        volume_size: GiB per instance, for the shards that are being written.
        max_run: time limit in seconds.
        cap: cost cap of all attempts, or None.
    """

    instance_count: int
    role: str
    code_location: str
    instance_type: str = "ml.m5.xlarge"
    image_uri: str | None = None
    volume_size: int = 30
    max_run: int = 86400
    cap: CostCap | None = None


def check_shardable(source: Source) -> None:
    """Check that the instances can read the source; they have no access to this worker's disk.

    Raises:
        SpecError: the source is on this worker's disk.
    """
    if not source.uri.startswith("s3://"):
        finding = Finding(
            where="source",
            what="cannot be read by the instances of a sharding job",
            got=source.uri,
            allowed="s3://bucket/prefix",
            next_step="copy the data to S3, or set shard_instance_count to 0",
        )
        raise SpecError(finding, subject="sharding job")


def sharding_job_spec(
    job: ShardingJob,
    *,
    code_s3_uri: str,
    plan_uris: Sequence[str],
    region: str,
    max_source_bytes: int,
    kms_key_id: str | None = None,
) -> ProcessingJobSpec:
    """Return the spec of the processing job. Each of its instances writes one part of each planned data set.

    Args:
        job: the job's instances.
        code_s3_uri: S3 address of the code from `uploaded_sharding_code`.
        plan_uris: S3 addresses of the data sets' plans.
        region: region of the job.
        max_source_bytes: limit on the bytes to read from a source, used for all plans; 0 = no limit.
        kms_key_id: KMS key that encrypts the shards; None uses the bucket's default.
    """
    key = ("--kms-key-id", kms_key_id) if kms_key_id else ()
    return ProcessingJobSpec(
        role=job.role,
        instance_type=job.instance_type,
        instance_count=job.instance_count,
        image_uri=job.image_uri,
        command=("python3", "-m"),
        entry_point=_MODULE,
        source_dir=code_s3_uri,
        arguments=(
            *(word for uri in plan_uris for word in ("--plan", uri)),
            *("--region", region),
            *("--max-source-bytes", str(max_source_bytes)),
            *key,
        ),
        volume_size=job.volume_size,
        max_run=job.max_run,
    )


def uploaded_sharding_code(
    clients: AwsClients, *, prefix_uri: str, with_tokenizers: bool
) -> UploadedCode:
    """Upload the code that the job's instances run, unless it is in S3 already, and return its address.

    Args:
        clients: clients of the connection.
        prefix_uri: S3 prefix of the code.
        with_tokenizers: whether the instances need the package `tokenizers`, in this worker's version.
    """
    with tempfile.TemporaryDirectory(prefix="sharding-code-") as folder:
        for name, path in archive_files():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        own = (f"tokenizers=={version('tokenizers')}",) if with_tokenizers else ()
        Path(folder, "requirements.txt").write_text("\n".join((*_REQUIREMENTS, *own, "")))
        return uploaded_code(
            clients,
            Path(folder),
            entry_point=f"{_MODULE.replace('.', '/')}.py",
            prefix_uri=prefix_uri,
        )


def archive_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of the instances' code: the name in the archive, and the local path."""
    plugin = Path(__file__).resolve().parents[1]
    for root, patterns in (
        (Path(str(trainyard.__file__)).resolve().parent, _OF_LIBRARY),
        (plugin, _OF_PLUGIN),
    ):
        for pattern in patterns:
            for path in root.glob(pattern):
                yield f"{root.name}/{path.relative_to(root)}", path
