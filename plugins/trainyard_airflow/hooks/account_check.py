"""Pre-run checks that a run's bucket, role, source and tokenizer exist and are accessible."""

from __future__ import annotations

import glob
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError as NoConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from trainyard.errors import (
    ExpiredCredentialsError,
    Finding,
    Severity,
    SpecError,
    ThrottledError,
)
from trainyard.sharding.source_glob import glob_start, is_match
from trainyard_airflow.hooks.local_files import readable_files
from trainyard_airflow.hooks.objects import S3Address, listed
from trainyard_airflow.hooks.refusals import code_and_message, is_absent_object, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainyard.specs.monitoring import Notifications
    from trainyard_airflow.hooks.aws_clients import AwsClients

T = TypeVar("T")

STANDARD_LIBRARY = "python-stdlib"
BYTES_TOKENIZER = "bytes"
_TRUSTS_SAGEMAKER = re.compile(
    r'"sagemaker\.amazonaws\.com|"(AWS|Service)": \[?"\*"|"Principal": "\*"'
)
"""Pattern of a trust policy whose principal may include SageMaker; its actions and conditions are not checked."""
_FORBIDDEN = {"403", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_NO_BUCKET = {"404", "NoSuchBucket"}
_NOT_ENCRYPTED = {"ServerSideEncryptionConfigurationNotFoundError"}
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


def asked(call: Callable[[], T], *, where: str, got: str | None) -> T:
    """Return the result of a call to AWS, and convert its failures to typed errors.

    Args:
        call: the call.
        where: the param that the call checks.
        got: value of the param.

    Raises:
        SpecError: the service rejected the call, or the connection cannot make it.
        ConnectionError: the service did not answer; the same call may succeed later.
        ThrottledError: the service throttled the call.
    """
    try:
        return call()
    except (HTTPClientError, NoConnectionError) as error:
        raise ConnectionError(
            f"AWS did not respond to a request about the {where}: {error}"
        ) from error
    except (ClientError, BotoCoreError) as error:
        raise SpecError(_refusal(error, where=where, got=got)) from error


def bucket_findings(clients: AwsClients, bucket: str) -> Iterator[Finding]:
    """Yield a finding if the bucket does not exist, is in another region, or is not accessible to the connection.

    If the bucket is in the right region, its default encryption is checked as well.
    """
    missing = Finding(
        where="bucket",
        what="does not exist",
        got=bucket,
        next_step="create it, or set another bucket in the param or the connection's extra",
    )
    regions: list[str] = []

    def ask() -> bool:
        regions.append(clients.client("s3").head_bucket(Bucket=bucket).get("BucketRegion", ""))
        return True

    yield from _unless_there(ask, missing=missing, absent=_NO_BUCKET)
    for region in regions:
        if region and region != clients.region:
            yield Finding(
                where="bucket",
                what="is in another region than the jobs, which SageMaker does not accept",
                got=f"{bucket} in {region}",
                allowed=f"a bucket in {clients.region}",
                next_step=f"set a bucket in {clients.region}, or set the connection's region_name to {region}",
            )
        else:
            yield from _encryption_findings(clients, bucket)


def _encryption_findings(clients: AwsClients, bucket: str) -> Iterator[Finding]:
    """Yield a warning if the bucket has no default encryption, or uses a key that the connection does not name."""
    rules: list[Mapping[str, Any]] = []

    def ask() -> bool:
        answer = clients.client("s3").get_bucket_encryption(Bucket=bucket)
        rules.extend(answer["ServerSideEncryptionConfiguration"]["Rules"])
        return True

    missing = Finding(
        where="bucket",
        what="has no default encryption",
        got=bucket,
        next_step="enable the bucket's default encryption, or set trainyard.kms_key_id in the connection's extra",
    )
    for each in _unless_there(ask, missing=missing, absent=_NOT_ENCRYPTED):
        yield replace(each, severity=Severity.WARNING)
    try:
        named = {clients.kms_key_id, clients.job_defaults.output_kms_key}
    except SpecError:  # invalid defaults have findings of their own
        return
    for rule in rules:
        key = rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
        if key and not any(_is_same_key(key, each) for each in named if each):
            yield Finding(
                where="bucket",
                what="is encrypted with a KMS key that the connection does not name",
                got=f"{bucket} with {key}",
                next_step="set trainyard.kms_key_id in the connection's extra to this key, and allow Airflow's "
                "identity and the execution role to use it ('trainyard permissions --kms-key' prints the policies)",
                severity=Severity.WARNING,
            )


def _is_same_key(one: str, other: str) -> bool:
    """Return whether two ids, ARNs or aliases may mean the same KMS key; an alias may mean any key."""
    return "alias/" in one + other or one.rpartition("/")[2] == other.rpartition("/")[2]


def role_findings(clients: AwsClients, role_arn: str) -> Iterator[Finding]:
    """Yield the faults of the execution role.

    If the role cannot be read, the finding is an error, except in three cases, in which it is a warning: the
    permission to read the role is missing, IAM throttles the call, or the connection to IAM fails. IAM has a
    VPC endpoint in us-east-1 only, so a VPC without internet access may have no route to IAM.
    """
    missing = Finding(
        where="role",
        what="does not exist",
        got=role_arn,
        next_step="create it with trust for sagemaker.amazonaws.com, or set another role in the param "
        "or the connection's extra (trainyard.execution_role_arn)",
    )
    role: dict[str, Any] = {}

    def read_role() -> bool:
        name = role_arn.rpartition("/")[2]
        role.update(clients.impatient_client("iam").get_role(RoleName=name)["Role"])
        return True

    try:
        yield from _unless_there(read_role, missing=missing, absent={"NoSuchEntity"})
    except (ConnectionError, ThrottledError) as error:
        yield Finding(
            where="role",
            what=f"cannot be checked: {error}",
            got=role_arn,
            next_step="check in the console that the role exists and trusts SageMaker",
            severity=Severity.WARNING,
        )
    trust = json.dumps(role.get("AssumeRolePolicyDocument", {}))
    if role and not _TRUSTS_SAGEMAKER.search(trust):
        yield Finding(
            where="role",
            what="does not trust SageMaker, so no job can run under it",
            got=f"{role_arn} with trust policy {trust}",
            allowed="a trust policy that allows sts:AssumeRole to the service sagemaker.amazonaws.com",
            next_step="'trainyard permissions' prints such a policy",
        )


def source_findings(
    clients: AwsClients, source: str, *, where: str = "source"
) -> Iterator[Finding]:
    """Yield a finding if a data source is forbidden, of an unknown kind, missing or empty."""
    if source == STANDARD_LIBRARY:
        return
    if refused := _local_refusals(clients, source, where=where):
        yield from refused
    elif source.startswith("s3://"):
        yield from channel_findings(clients, source, where=where)
    elif "://" in source:
        yield Finding(
            where=where,
            what="is of an unknown kind",
            got=source,
            allowed="a path, s3://... or python-stdlib",
        )
    else:
        yield from _path_findings(Path(source).expanduser(), where=where)


def channel_findings(clients: AwsClients, uri: str, *, where: str) -> Iterator[Finding]:
    """Yield a finding if there is no object with content below the S3 address of a channel."""
    missing = Finding(
        where=where,
        what="has no objects with content, or its bucket does not exist",
        got=uri,
        next_step="put the data there, or correct the address",
    )
    yield from _unless_there(partial(_has_bytes, clients, uri), missing=missing, absent=_NO_BUCKET)


def object_findings(clients: AwsClients, uri: str, *, where: str) -> Iterator[Finding]:
    """Yield a finding if there is no object at an S3 address."""
    missing = Finding(
        where=where,
        what="does not exist",
        got=uri,
        next_step="upload the object, or correct the address",
    )
    yield from _unless_there(partial(_is_object, clients, uri), missing=missing, absent=_NO_BUCKET)


def tokenizer_findings(clients: AwsClients, tokenizer: str) -> Iterator[Finding]:
    """Yield a finding if the tokenizer's file is forbidden or does not exist."""
    if tokenizer == BYTES_TOKENIZER:
        return
    if refused := _local_refusals(clients, tokenizer, where="tokenizer"):
        yield from refused
        return
    missing = Finding(
        where="tokenizer",
        what="does not exist",
        got=tokenizer,
        next_step="use `bytes`, a path that every worker can read, or an s3:// address",
    )
    there: Callable[[], bool] = partial(_is_object, clients, tokenizer)
    if not tokenizer.startswith("s3://"):
        there = Path(tokenizer).is_file
    yield from _unless_there(there, missing=missing, absent=_NO_BUCKET)


def _local_refusals(clients: AwsClients, path: str, *, where: str) -> tuple[Finding, ...]:
    """Return the findings on a local path that runs are not allowed to read.

    The result is empty for an address such as `s3://...`, and for a path that runs are allowed to read. The
    findings do not reveal whether the path exists.
    """
    if "://" in path:
        return ()
    try:
        return tuple(readable_files(clients).findings(path, where=where))
    except SpecError as error:
        return error.findings


def topic_findings(clients: AwsClients, notifications: Notifications) -> Iterator[Finding]:
    """Yield the faults of a run's notification topic; a warning if the topic cannot be read."""
    where, arn = "notifications.topic_arn", notifications.topic_arn
    if notifications.region != clients.region:
        yield Finding(
            where=where,
            what="is in another region than the connection",
            got=arn,
            allowed=f"a topic in {clients.region}",
        )
        return
    missing = Finding(
        where=where,
        what="does not exist",
        got=arn,
        next_step="create the topic, or remove notifications",
    )
    found = _unless_there(
        lambda: clients.client("sns").get_topic_attributes(TopicArn=arn),
        missing=missing,
        absent={"NotFound", "NotFoundException"},
    )
    for each in found:
        yield each if each is missing else replace(each, severity=Severity.WARNING)


def _unless_there(
    call: Callable[[], object], *, missing: Finding, absent: set[str]
) -> Iterator[Finding]:
    """Yield `missing` if the call returns nothing or fails with an error code in `absent`.

    If the service rejects the call for another reason, yield the findings of that error.
    """
    try:
        if not asked(call, where=missing.where, got=missing.got):
            yield missing
    except SpecError as error:
        refused = error.__cause__
        is_absent = isinstance(refused, ClientError) and code_and_message(refused)[0] in absent
        yield from (missing,) if is_absent else error.findings


def _has_bytes(clients: AwsClients, uri: str) -> bool:
    """Return whether `uri`, read as a prefix or as a glob, matches an object that is not empty."""
    at = S3Address.parse(uri)
    return any(
        each["Size"] and (each["Key"].startswith(at.key) or is_match(each["Key"], at.key))
        for each in listed(clients.client("s3"), replace(at, key=glob_start(at.key)))
    )


def _is_object(clients: AwsClients, uri: str) -> bool:
    at = S3Address.parse(uri)
    try:
        clients.client("s3").head_object(Bucket=at.bucket, Key=at.key)
    except ClientError as error:
        if is_absent_object(*code_and_message(error)):
            return False
        raise
    return True


def _path_findings(path: Path, *, where: str) -> Iterator[Finding]:
    pattern = glob.iglob(str(path), recursive=True)  # noqa: PTH207  # it may be absolute
    found = path.rglob("*") if path.is_dir() else map(Path, [path] if path.is_file() else pattern)
    sizes = (each.stat().st_size for each in found if each.is_file())
    first = next(sizes, None)
    if first is None and not path.is_dir():
        yield Finding(
            where=where,
            what="does not exist on this worker",
            got=str(path),
            next_step="use a path that every worker can read, or an s3:// address",
        )
    elif not first and not any(sizes):
        yield Finding(
            where=where,
            what="is empty",
            got=str(path),
            next_step="put the data there, or correct the path",
        )


def _refusal(error: ClientError | BotoCoreError, *, where: str, got: str | None) -> Finding:
    """Return the finding for a rejected check; a missing permission is a warning, because the run itself may work.

    Raises:
        ThrottledError: the call was throttled; it may succeed after a wait.
        ExpiredCredentialsError: the credentials have expired; the connection may have new ones at the next try.
    """
    if isinstance(error, ClientError):
        ours = typed(error, where=where)
        if isinstance(ours, ThrottledError | ExpiredCredentialsError):
            raise ours from error
        is_forbidden = code_and_message(error)[0] in _FORBIDDEN
        severity = Severity.WARNING if is_forbidden else Severity.ERROR
        what = f"cannot be checked: {ours.got}"
        return Finding(where=where, what=what, got=got, next_step=ours.next_step, severity=severity)
    step = "correct the connection in Airflow"
    if isinstance(error, _NO_CREDENTIALS):
        step = "give the connection credentials, or run Airflow where an AWS role is attached"
    elif isinstance(error, ParamValidationError):
        step = "correct the value as the message describes"
    message = " ".join(str(error).split())
    return Finding(where=where, what=f"cannot be checked: {message}", got=got, next_step=step)
