"""Looks whether the bucket, the role and the source of a run are there, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from distributed_training.hooks.objects import S3Address
from include.errors import Finding, Severity, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed_training.hooks.aws_clients import AwsClients

STANDARD_LIBRARY = "python-stdlib"
_FORBIDDEN = {"403", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_NO_BUCKET = {"404", "NoSuchBucket"}


def bucket_findings(clients: AwsClients, bucket: str) -> Iterator[Finding]:
    """Yield what is wrong with the bucket: it is not there, or this connection may not look."""
    try:
        clients.client("s3").head_bucket(Bucket=bucket)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _NO_BUCKET:
            yield Finding(
                where="bucket",
                what="does not exist",
                got=bucket,
                next_step="create it, or name another in the param or the connection's extra",
            )
        else:
            yield _unseen("bucket", bucket, error)


def role_findings(clients: AwsClients, role_arn: str) -> Iterator[Finding]:
    """Yield what is wrong with the execution role; without permission to look only a warning."""
    name = role_arn.rpartition("/")[2]
    try:
        clients.client("iam").get_role(RoleName=name)
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchEntity":
            yield Finding(
                where="role",
                what="does not exist",
                got=role_arn,
                next_step="create it with trust for sagemaker.amazonaws.com, or name another in the param "
                "or the connection's extra (trainyard.execution_role_arn)",
            )
        else:
            yield _unseen("role", role_arn, error)


def source_findings(clients: AwsClients, source: str) -> Iterator[Finding]:
    """Yield what is wrong with a data source: nothing there, or nothing in it."""
    if source == STANDARD_LIBRARY:
        return
    if source.startswith("s3://"):
        yield from _s3_source_findings(clients, source)
    elif "://" in source:
        yield Finding(
            where="source", what="is of an unknown kind", got=source, allowed="a path or s3://..."
        )
    else:
        yield from _path_findings(Path(source))


def _s3_source_findings(clients: AwsClients, source: str) -> Iterator[Finding]:
    try:
        at = S3Address.parse(source)
    except SpecError as error:
        yield from error.findings
        return
    try:
        pages = clients.client("s3").get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=at.bucket, Prefix=at.key)
        if any(each["Size"] for page in listed for each in page.get("Contents", ())):
            return
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NO_BUCKET:
            yield _unseen("source", source, error)
            return
    yield Finding(where="source", what="there is no object with bytes below it", got=source)


def _path_findings(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding(
            where="source",
            what="does not exist on this worker",
            got=str(path),
            next_step="use a path that every worker can read, or an s3:// address",
        )
        return
    files = [path] if path.is_file() else (each for each in path.rglob("*") if each.is_file())
    if not any(each.stat().st_size for each in files):
        yield Finding(where="source", what="is empty", got=str(path))


def _unseen(where: str, what: str, error: ClientError) -> Finding:
    """Return the finding for something one may not look at: a warning, since the run itself may be allowed to."""
    code = error.response["Error"]["Code"]
    severity = Severity.WARNING if code in _FORBIDDEN else Severity.ERROR
    return Finding(where=where, what=f"cannot be looked at ({code})", got=what, severity=severity)
