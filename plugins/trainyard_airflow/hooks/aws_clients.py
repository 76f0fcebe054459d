"""Sync and async AWS clients of one Airflow connection, all with the same region, endpoint and settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook, BaseSessionFactory
from botocore.config import Config
from botocore.exceptions import UnknownRegionError
from botocore.loaders import Loader, create_loader

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.names import deployment_prefix
from trainyard.specs.account_defaults import AccountDefaults
from trainyard.specs.account_limits import AccountLimits
from trainyard_airflow.hooks.encryption import encrypt_writes, encrypting
from trainyard_airflow.hooks.known_members import known_members
from trainyard_airflow.hooks.retries import IMPATIENT, patient_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

_FALLBACK_REGION_MESSAGE = (
    "set region_name in the connection's extra or in the operator, or set AWS_DEFAULT_REGION"
)
_AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_TAG_VALUE = re.compile(r"[A-Za-z0-9 _.:/=+@-]{1,256}")
_TAG_VALUE_WORDS = "1 to 256 characters from A-Z a-z 0-9 space _ . : / = + @ -"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionArguments:
    """Name of a connection and overrides of its fields; JSON-safe, for transfer from worker to triggerer."""

    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None
    verify: bool | str | None = None
    botocore_config: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON-safe data."""
        config = None if self.botocore_config is None else dict(self.botocore_config)
        return {
            "aws_conn_id": self.aws_conn_id,
            "region_name": self.region_name,
            "verify": self.verify,
            "botocore_config": config,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the arguments from the result of `to_dict`; unknown members of later releases are ignored.

        Raises:
            TypeError: `data` is not a mapping.
        """
        return cls(**known_members(cls, data))


def load_model(service: str) -> None:
    """Read a service's API model into the cache that all async clients of this process share."""
    session = BaseSessionFactory(conn=None).get_async_session()  # type: ignore[no-untyped-call]
    loader = session.get_component("data_loader")
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model(service, kind)


@cache
def _models(search_path: str | None) -> Loader:
    """Return the loader that all sessions of this process share; it reads SageMaker's API model (0.3 s of CPU) once."""
    return create_loader(search_path)


class _SharedSessionHook(AwsBaseHook):
    """A hook that creates its clients from a given session, because each new session reads the service models again."""

    session: Any = None

    def get_session(self, region_name: str | None = None, deferrable: bool = False) -> Any:
        """Return the shared session.

        For async clients, or if no session is shared yet, return a new session.
        """
        if deferrable or self.session is None:
            return super().get_session(region_name=region_name, deferrable=deferrable)
        return self.session

    def _get_caller(self, target_function_name: str = "execute") -> str:  # noqa: ARG002
        """Return the caller's name for the user agent, which is always `Trainyard`.

        The provider's hook would search the call stack for it, which takes 0.1 s per client.
        """
        return "Trainyard"


class AwsClients:
    """The clients of one connection, each created once, with the same region, endpoint and settings.

    The provider's hooks of different services may have different regions; here all services have the same region.
    """

    def __init__(self, connection: ConnectionArguments) -> None:
        self.connection = connection
        self._hooks: dict[tuple[str, bool], _SharedSessionHook] = {}

    def client(self, service: str) -> Any:
        """Return the boto3 client of a service, such as `sagemaker` or `s3`, with more retries than botocore's own."""
        client = self._hook(service, is_patient=True).conn
        return encrypt_writes(client, self.kms_key_id) if service == "s3" else client

    def impatient_client(self, service: str) -> Any:
        """Return a new boto3 client of a service with short timeouts, for calls whose failure a task tolerates."""
        given = self._hook("sagemaker").conn_config.botocore_config
        hook = self._hook_with(service, IMPATIENT if given is None else given.merge(IMPATIENT))
        hook.session = self.session
        return hook.conn

    @cached_property
    def session(self) -> Any:
        """The connection's boto3 session, with its credentials and region; endpoints are set in the clients."""
        session = self._hook("sagemaker").get_session()
        core = session._session  # noqa: SLF001  # boto3 has no public name for it
        core.register_component("data_loader", _models(core.get_config_variable("data_path")))
        return session

    async def async_client(self, service: str) -> AbstractAsyncContextManager[Any]:
        """Return a context manager that opens an aiobotocore client of a service.

        It has botocore's default retries only, because code in the triggerer logs and repeats failed calls itself.
        """
        hook = self._hook(service)
        opened: AbstractAsyncContextManager[Any] = await hook.get_async_conn()  # type: ignore[no-untyped-call]
        return encrypting(opened, self.kms_key_id) if service == "s3" else opened

    @cached_property
    def region(self) -> str:
        """The region of every client.

        Raises:
            SpecError: the operator, the connection and the environment name no region.
        """
        region = self._hook("sagemaker").region_name or self._session_region()
        if not region:
            self._check_exists()
            raise self._region_refused("is not set")
        return region

    @cached_property
    def partition(self) -> str:
        """The AWS partition: `aws`, `aws-cn` or `aws-us-gov`.

        Raises:
            SpecError: the region is not set, or is not a region of AWS.
        """
        try:
            return str(self.session.get_partition_for_region(self.region))
        except UnknownRegionError:
            raise self._region_refused(
                "is not a region of AWS",
                got=repr(self.region),
                allowed="a region such as 'us-east-1'",
            ) from None

    @property
    def has_console(self) -> bool:
        """True if the AWS console shows the jobs: the endpoint is AWS's, or a VPC endpoint."""
        host = urlsplit(self.client("sagemaker").meta.endpoint_url).hostname or ""
        return host.endswith(_AWS_DOMAINS)

    @cached_property
    def account(self) -> str:
        """The account id, read from STS once."""
        return str(self.client("sts").get_caller_identity()["Account"])

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The `trainyard` part of the connection's extra, such as `bucket` and `execution_role_arn`."""
        extra = self._hook("sagemaker").conn_config.extra_config.get("trainyard", {})
        return extra if isinstance(extra, dict) else {}

    @cached_property
    def job_defaults(self) -> AccountDefaults:
        """The connection's default settings for all jobs.

        Raises:
            SpecError: unknown keys or wrong types in `trainyard.job_defaults` of the extra.
        """
        given = self._object("job_defaults")
        return AccountDefaults.from_mapping(given, where=self._place("job_defaults"))

    @cached_property
    def job_limits(self) -> AccountLimits:
        """The connection's limits for all jobs.

        Raises:
            SpecError: unknown keys or wrong types in `trainyard.job_limits` of the extra.
        """
        return AccountLimits.from_mapping(
            self._object("job_limits"), where=self._place("job_limits")
        )

    @property
    def deployment(self) -> str | None:
        """The name of this Airflow among those that share the account; None if the connection gives none.

        Raises:
            SpecError: the name is not a valid tag value.
        """
        name = self.defaults.get("deployment")
        if not name:
            return None
        if not isinstance(name, str) or not _TAG_VALUE.fullmatch(name):
            raise self._refused(
                "deployment",
                name,
                what="is not a valid value of an AWS tag",
                allowed=_TAG_VALUE_WORDS,
            )
        return name

    @property
    def kms_key_id(self) -> str | None:
        """The KMS key for objects that this connection writes to S3; None uses the bucket's default."""
        key = self.defaults.get("kms_key_id")
        return str(key) if key else None

    @property
    def shortest_poll_s(self) -> float | None:
        """The shortest time between two polls of a job in seconds, as set in the connection; None if it is not set.

        Raises:
            SpecError: the setting is not a positive number.
        """
        given = self.defaults.get("shortest_poll_s")
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
            raise self._refused(
                "shortest_poll_s",
                given,
                what="is not a positive number of seconds",
                allowed="more than 0",
            )
        return float(given)

    @property
    def root(self) -> str:
        """The default S3 prefix of all runs: `s3://<bucket>/trainyard[/<deployment>]`.

        Raises:
            SpecError: the connection names no bucket.
        """
        return f"s3://{self.bucket()}/{deployment_prefix('trainyard', self.deployment)}"

    def bucket(self, override: str | None = None) -> str:
        """Return the bucket for code, data sets and runs: the override, otherwise the connection's bucket.

        Raises:
            SpecError: there is no override, and the connection names no bucket.
        """
        return override or self._default("bucket", param="bucket")

    def _region_refused(
        self, what: str, *, got: str | None = None, allowed: str | None = None
    ) -> SpecError:
        finding = Finding(
            where="AWS region",
            what=what,
            got=got,
            allowed=allowed,
            next_step=_FALLBACK_REGION_MESSAGE,
        )
        return SpecError(finding)

    def _place(self, key: str) -> str:
        return f"connection {self.connection.aws_conn_id!r}, extra trainyard.{key}"

    def _object(self, key: str) -> dict[str, Any]:
        given = self.defaults.get(key, {})
        if not isinstance(given, dict):
            raise self._refused(key, given, what="is not a JSON object", allowed="keys and values")
        return given

    def _refused(self, key: str, got: object, *, what: str, allowed: str) -> SpecError:
        finding = Finding(where=self._place(key), what=what, got=repr(got), allowed=allowed)
        return SpecError(finding)

    def execution_role(self, override: str | None = None) -> str:
        """Return the ARN of the jobs' role: the override (an ARN or a name), otherwise the connection's role.

        Raises:
            SpecError: there is no override, and the connection names no role.
        """
        role = override or self._default("execution_role_arn", param="role")
        if role.startswith("arn:"):
            return role
        return f"arn:{self.partition}:iam::{self.account}:role/{role}"

    def _default(self, key: str, *, param: str) -> str:
        value = self.defaults.get(key)
        if not value:
            self._check_exists()
            where = self._place(key)
            example = (
                '{"trainyard": {"bucket": "my-bucket", "execution_role_arn": "arn:aws:iam::..."}}'
            )
            raise SpecError(
                Finding(
                    where=where,
                    what="is not set",
                    next_step=f"set it there, as in {example}, or set the run's param {param!r}",
                )
            )
        return str(value)

    def _check_exists(self) -> None:
        """Check that Airflow has the connection; the provider's hook would continue without it.

        Raises:
            SpecError: there is no connection of this name.
        """
        name = self.connection.aws_conn_id
        if name is None or self._hook("sagemaker").conn_config:
            return
        variable = f"AIRFLOW_CONN_{name.upper()}"
        raise SpecError(
            Finding(
                where=f"connection {name!r}",
                what="does not exist in this Airflow",
                next_step=f"for a local engine, set {variable} as `trainyard engine` printed it, and restart "
                "Airflow; for AWS, create the connection (docs/aws.md)",
            )
        )

    def _session_region(self) -> str | None:
        region: str | None = self.session.region_name
        return region

    def _hook(self, service: str, *, is_patient: bool = False) -> _SharedSessionHook:
        if (service, is_patient) not in self._hooks:
            given = self.connection.botocore_config
            config = None if given is None else Config(**given)
            if is_patient:
                config = patient_config(self._hook("sagemaker").conn_config.botocore_config)
            hook = self._hooks[service, is_patient] = self._hook_with(service, config)
            hook.session = self.session if is_patient else None
        return self._hooks[service, is_patient]

    def _hook_with(self, service: str, config: Config | None) -> _SharedSessionHook:
        return _SharedSessionHook(
            aws_conn_id=self.connection.aws_conn_id,
            client_type=service,
            region_name=self.connection.region_name,
            verify=self.connection.verify,
            config=config,
        )
