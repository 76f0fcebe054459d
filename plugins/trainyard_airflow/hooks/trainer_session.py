"""A session of the SageMaker SDK v3 that uses an Airflow connection.

The SDK's own session reads the machine's credentials and configuration files, calls a fixed STS endpoint, creates its
default bucket if it does not exist, and uploads the same code for every job. This session uses the connection's
clients, bucket and role, and stores uploads under the SHA-256 of their content. Importing the SDK takes seconds, so
only tasks import this module.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from trainyard_airflow.hooks.encryption import encrypt_writes
from trainyard_airflow.hooks.objects import S3Address, keys_below
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainyard_airflow.hooks.aws_clients import AwsClients


def trainer_session(clients: AwsClients) -> Any:
    """Return a `sagemaker.core.helper.session_helper.Session` of the connection.

    A trainer without `role` gets the connection's role. The SDK's default addresses are below `clients.root`, where
    `trainyard permissions` allows jobs to write.

    Raises:
        SpecError: the connection names no region, bucket or execution role.
    """
    from sagemaker.core.helper.session_helper import Session  # type: ignore[import-untyped]

    root = S3Address.parse(clients.root)

    class TrainerSession(Session):  # type: ignore[misc]  # the SDK ships no types
        """SDK session that uploads by content hash and never creates a bucket."""

        def default_bucket(self) -> str:
            return root.bucket

        def upload_data(
            self,
            path: str,
            bucket: str | None = None,
            key_prefix: str = "data",
            callback: Any = None,  # noqa: ARG002
            extra_args: Mapping[str, Any] | None = None,
        ) -> str:
            return staged(
                self.s3_client,
                Path(path),
                place=f"s3://{bucket or root.bucket}/{root.key}/staged",
                name=key_prefix.rpartition("/")[2],
                extra_args=extra_args or {},
            )

    return TrainerSession(
        boto_session=_ConnectionSession(clients),
        default_bucket=root.bucket,
        default_bucket_prefix=root.key,
        sagemaker_config=_configuration(clients.execution_role()),
    )


def staged(client: Any, path: Path, *, place: str, name: str, extra_args: Mapping[str, Any]) -> str:
    """Return the S3 address of a file or folder, and upload it unless its content is there already.

    Args:
        client: an S3 client.
        path: the file or folder; Python's caches are left out.
        place: `s3://bucket/prefix`; the content goes to `<place>/<SHA-256>/<name>`.
        name: last part of the address, such as the channel's name.
        extra_args: settings of the upload, such as its encryption; part of the hash.

    Raises:
        TrainingRunError: S3 rejected a call.
    """
    files = dict(_files(path))
    digest = hashlib.sha256(repr(sorted(extra_args.items())).encode())
    for key, each in sorted(files.items()):
        content = each.read_bytes()
        digest.update(f"{key}\0{len(content)}\0".encode() + content)
    uri = f"{place}/{digest.hexdigest()}/{name}"
    at = S3Address.parse(f"{uri}/")
    with refusals_typed(uri):
        there = set(keys_below(client, at))
        for key, each in files.items():
            if f"{at.key}{key}" not in there:
                client.upload_file(str(each), at.bucket, f"{at.key}{key}", ExtraArgs={**extra_args})
    return uri if path.is_dir() else f"{uri}/{path.name}"


def _files(path: Path) -> Iterable[tuple[str, Path]]:
    if path.is_file():
        yield path.name, path
        return
    for each in path.rglob("*"):
        if each.is_file() and "__pycache__" not in each.parts:
            yield each.relative_to(path).as_posix(), each


def _configuration(role: str) -> dict[str, Any]:
    """Return the SDK's configuration, in place of the configuration files of this machine."""
    quiet = {"Modules": {"TelemetryOptOut": True}}
    parts = {"PythonSDK": quiet, "TrainingJob": {"RoleArn": role}}
    return {"SchemaVersion": "1.0", "SageMaker": parts}


class _ConnectionSession(boto3.Session):
    """A boto3 session with the connection's clients; it ignores the endpoints that the SDK sets."""

    def __init__(self, clients: AwsClients) -> None:
        # A copy: boto3's constructor would register its event handlers a second time.
        vars(self).update(vars(clients.session))
        self._clients = clients

    @property
    def region_name(self) -> str:
        return self._clients.region

    def client(self, service_name: str, *_: Any, **__: Any) -> Any:
        if service_name == "iam":  # the SDK continues if IAM does not answer
            return self._clients.impatient_client(service_name)
        return self._clients.client(service_name)

    def resource(self, service_name: str, *_: Any, **__: Any) -> Any:
        endpoint = self.client(service_name).meta.endpoint_url
        resource = super().resource(  # type: ignore[call-overload]  # the stubs want a literal name
            service_name, region_name=self.region_name, endpoint_url=endpoint
        )
        if service_name == "s3":
            encrypt_writes(resource.meta.client, self._clients.kms_key_id)
        return resource
