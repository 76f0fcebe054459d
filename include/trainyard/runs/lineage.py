"""Data sets of a run, named by OpenLineage's rules. Pure; the plugin converts them to OpenLineage's objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.job_status import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageDataset:
    """A data set: the data of a channel, shards, a model's file, or a version in the model registry.

    Attributes:
        namespace: the scope in which its name is unique, such as `s3://bucket`.
        version: digest of its content; None if it is unknown.
    """

    namespace: str
    name: str
    version: str | None = None


def s3_dataset(uri: str, *, version: str | None = None) -> LineageDataset:
    """Return the data set of an S3 address.

    Its namespace is `s3://bucket`. Its name is the key, without slashes at its ends. The whole bucket has the
    name `/`.
    Source: openlineage.io/docs/spec/naming (2026-11-25).
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return LineageDataset(namespace=f"s3://{bucket}", name=key.strip("/") or "/", version=version)


def model_package_dataset(arn: str, *, version: str | None = None) -> LineageDataset:
    """Return the OpenLineage data set that represents a model package, a version in the model registry.

    OpenLineage has no naming rule for SageMaker, so the names follow OpenLineage's rule for AWS Glue. Worked:
    `arn:aws:sagemaker:eu-west-1:111122223333:model-package/group/1` has the namespace
    `arn:aws:sagemaker:eu-west-1:111122223333` and the name `model-package/group/1`.
    """
    namespace, _, name = arn.rpartition(":")
    return LineageDataset(namespace=namespace, name=name, version=version)


def input_datasets(uris: Iterable[str]) -> Iterator[LineageDataset]:
    """Yield the data sets of a job's inputs, each once; addresses outside of S3 are omitted."""
    for uri in dict.fromkeys(uris):
        if uri.startswith("s3://"):
            yield s3_dataset(uri)


def job_outputs(job: Mapping[str, Any]) -> Iterator[LineageDataset]:
    """Yield the model and the outputs of an ended job, from its snapshot; nothing for a job that failed."""
    if job.get("status") == JobStatus.FAILED:
        return
    if job.get("model_artifact"):
        yield s3_dataset(str(job["model_artifact"]))
    for uri in (job.get("outputs") or {}).values():
        yield s3_dataset(str(uri))
