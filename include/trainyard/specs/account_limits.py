"""`AccountLimits`: settings that an account requires of all jobs, and the resources that its jobs may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError
from trainyard.specs.account_defaults import has_local_storage, instance_types
from trainyard.specs.reading import FromMapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.specs.automl_job import AutoMLJobSpec
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.training_job import TrainingJobSpec

    Spec = TrainingJobSpec | ProcessingJobSpec | AutoMLJobSpec


class Required(StrEnum):
    """A setting that an account may require of every job. Each value is the setting's name in the specs."""

    SUBNETS = "subnets"
    VOLUME_KMS_KEY = "volume_kms_key"
    OUTPUT_KMS_KEY = "output_kms_key"
    ENABLE_NETWORK_ISOLATION = "enable_network_isolation"
    ENCRYPT_INTER_CONTAINER_TRAFFIC = "encrypt_inter_container_traffic"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits(FromMapping):
    """Limits for all jobs, checked after the connection's defaults are merged. An empty list of globs allows all.

    Attributes:
        required: settings that a job must have. Two exceptions: jobs that run only on instance types with local NVMe
            storage need no volume key, and AutoML jobs need no network isolation.
        required_tags: keys of the tags that a job must have.
        roles: globs of execution roles.
        buckets: globs of the buckets that a job reads and writes, checked for the addresses in its spec and in the
            run's conf.
        images: globs of image URIs.
        instance_types: globs of instance types.
        max_run_usd: the largest allowed cost of a whole run, compared with the cost ceiling in its plan.
        team_month_usd: the largest allowed cost of all runs of a team in a month, by team. The key `*` stands
            for each team that is not listed.
        team_tag: the tag of `job_defaults` whose value is the team.
    """

    required: tuple[Required, ...] = ()
    required_tags: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    max_run_usd: float | None = None
    team_month_usd: Mapping[str, float] = field(default_factory=dict)
    team_tag: str = "team"

    def __post_init__(self) -> None:
        """Check that the budgets of teams are above 0.

        Raises:
            SpecError: a budget is not above 0; the error lists all such budgets.
        """
        wrong = [
            Finding(
                where=f"team_month_usd.{team}",
                what="is not an amount of money",
                got=repr(usd),
                allowed="a number of USD above 0",
            )
            for team, usd in self.team_month_usd.items()
            if not usd > 0
        ]
        if wrong:
            raise SpecError(wrong, subject="job_limits")

    def check(self, spec: Spec, *, image_uri: str | None = None, reads: Sequence[str] = ()) -> None:
        """Check a job against the limits.

        Args:
            spec: the job, with the connection's defaults.
            image_uri: the container's image; None for an AutoML job, whose images the service chooses.
            reads: addresses that the job reads in addition to those in its spec.

        Raises:
            SpecError: the job violates limits; the error lists all violations.
        """
        findings = [*self.findings(spec, image_uri=image_uri), *self.bucket_findings(list(reads))]
        if findings:
            raise SpecError(findings, subject="the account's limits")

    def findings(self, spec: Spec, *, image_uri: str | None = None) -> Iterator[Finding]:
        """Yield a finding for each limit that a job violates.

        Args:
            spec: the job, with the connection's defaults.
            image_uri: the container's image; None for an AutoML job, whose images the service chooses.
        """
        if self != AccountLimits() and getattr(spec, "raw_request_overrides", None):
            yield Finding(
                where="raw_request_overrides",
                what="is not allowed, because it could bypass the connection's job_limits",
                next_step="use the spec's own fields",
            )
        for name in self.required:
            if not self._has(spec, name):
                yield _missing(name.value, instance_types(spec))
        for tag in self.required_tags:
            if tag not in (spec.tags or {}):
                yield _missing(f"tags.{tag}")
        yield from _outside("role", [spec.role], self.roles)
        yield from _outside("image_uri", [image_uri] if image_uri else [], self.images)
        yield from _outside("instance_type", instance_types(spec), self.instance_types)
        yield from self.bucket_findings(asdict(spec))

    def bucket_findings(self, given: object) -> Iterator[Finding]:
        """Yield a finding for each forbidden bucket in `given`.

        All S3 addresses in `given` are checked, at any depth of its mappings, lists and tuples.
        """
        buckets = {each.partition("/")[0] for each in _s3_paths(given)}
        yield from _outside("bucket", sorted(buckets), self.buckets)

    def cost_findings(self, ceiling_usd: float | None) -> Iterator[Finding]:
        """Yield a finding if a run can cost more than `max_run_usd`, or if its cost is unknown.

        Args:
            ceiling_usd: the most that the run can cost; None if it is unknown.
        """
        if self.max_run_usd is None or (
            ceiling_usd is not None and ceiling_usd <= self.max_run_usd
        ):
            return
        yield Finding(
            where="budget_usd",
            what="this run could cost more than the connection's job_limits allow",
            got="an unknown price" if ceiling_usd is None else f"up to ${ceiling_usd:,.2f}",
            allowed=f"${self.max_run_usd:,.2f} (max_run_usd)",
            next_step="lower max_run_s or instance_count, shrink the search, or choose instances with a known price",
        )

    def _has(self, spec: Spec, name: Required) -> bool:
        if not hasattr(spec, name):
            return True
        if name is Required.VOLUME_KMS_KEY and all(map(has_local_storage, instance_types(spec))):
            return True
        return bool(getattr(spec, name))


def _missing(name: str, types: Sequence[str] = ()) -> Finding:
    keyless = [each for each in types if has_local_storage(each)]
    return Finding(
        where=name,
        what="is missing, but the connection's job_limits require it",
        next_step=f"replace {', '.join(keyless)}: types with local NVMe storage accept no key"
        if name == Required.VOLUME_KMS_KEY and keyless
        else f"set {name} in trainyard.job_defaults of the connection's extra, or in the job's spec",
    )


def _outside(where: str, values: Sequence[str], globs: Sequence[str]) -> Iterator[Finding]:
    for value in values:
        if globs and not any(fnmatchcase(value, each) for each in globs):
            yield Finding(
                where=where,
                what="is not allowed by the connection's job_limits",
                got=repr(value),
                allowed=", ".join(globs),
            )


def _s3_paths(value: object) -> Iterator[str]:
    """Yield `bucket/key` of every S3 address in a value, at any depth of its mappings, lists and tuples."""
    if isinstance(value, str):
        if value.startswith("s3://"):
            yield value.removeprefix("s3://")
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _s3_paths(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _s3_paths(each)
