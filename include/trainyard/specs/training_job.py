"""`TrainingJobSpec`: one training job in the SageMaker SDK estimator's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from trainyard.errors import Finding, SpecError
from trainyard.specs.capacity_rung import CapacityRung  # noqa: TC001  # read_spec evaluates the annotations
from trainyard.specs.channel import read_channel
from trainyard.specs.distribution import Distribution, read_distribution
from trainyard.specs.limits import STOP_RESERVE_S
from trainyard.specs.metrics import MetricDefinition  # noqa: TC001  # see above
from trainyard.specs.reading import READ_EACH, FromMapping, read_each
from trainyard.specs.service_debugger import Debugger
from trainyard.specs.training_job_rules import ARGUMENTS_PROGRAM, spec_checks

DEFAULT_QUOTA_WAIT_S = 24 * 3600
"""Default of the longest time that a job waits for the account's quota: one day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """One group of a heterogeneous cluster."""

    instance_group_name: str
    instance_type: str
    instance_count: int


def instances_of(groups: Iterable[InstanceGroup]) -> dict[str, int]:
    """Return the number of instances by type over all groups."""
    counts: dict[str, int] = {}
    for each in groups:
        counts[each.instance_type] = counts.get(each.instance_type, 0) + each.instance_count
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePreference:
    """One entry of an ordered list of instance types; the service uses the first with available capacity."""

    instance_type: str
    instance_count: int | None = None
    training_plan_arns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJobSpec(FromMapping):
    """One training job, with the names of the SDK's estimator. All members of CreateTrainingJob can be set.

    Members that the estimator accepts as raw request dicts (`debugger_hook_config`, `rules`,
    `profiler_config`, `experiment_config`, ...) keep the request's keys.
    `raw_request_overrides` is merged last, over everything else. The merged request is validated
    against botocore's description of the API.

    Attributes:
        role: ARN of the execution role, or its bare name if the account is known.
        output_path: S3 prefix of model.tar.gz and output.tar.gz.
        image_uri: the training image; without it `framework`, `framework_version` and `py_version`
            choose AWS's own image for the region (`trainyard.sagemaker_api.images`).
        source_dir: folder with the entry point, to be uploaded. Allowed are an absolute path, a path relative
            to the parent folder of Airflow's `dags`, `shipped:...` for Trainyard's own scripts, and
            `git+https://...@<commit>`. None = the parent folder of `dags`. An archive `s3://...tar.gz` is used
            directly.
        code_location: S3 prefix of the uploaded code.
        requirements: path in source_dir of the file that is installed by pip before the entry point starts;
            None = requirements.txt, if there is one. It needs a folder or repository, not an archive on S3.
        arguments: command line arguments of the entry point, passed unchanged before the hyperparameters. For
            positional arguments, flags without a value, and `--name=value`. They need a folder or repository,
            not an archive on S3.
        max_run: maximum run time in seconds.
        max_wait: longest sum of run time and wait for spot capacity, in seconds; needs use_spot_instances.
        volume_size: size of each instance's volume in GiB.
        keep_alive_period_in_seconds: lifetime of the warm pool; 0 or None = no warm pool.
        inputs: mapping from channel name to channel.
        max_retry_attempts: largest number of restarts by the service after errors of the service
            (RetryStrategy).
        capacity_ladder: capacity tiers that the operator tries in order, instead of instance_type and
            use_spot_instances. instance_count applies to tiers without their own.
        max_quota_wait_s: seconds for which the operator retries a job that exceeds the account's quota, on the
            last tier of a ladder or without a ladder; 0 = no limit.
        forward_sigterm: whether the container's process 1 forwards SIGTERM to the ranks of the entry point. The
            ranks then notice a stop and an announced spot interruption. For images with the framework toolkit.
        heartbeat_timeout_s: longest time in seconds between two of the script's log lines that begin with
            `trainyard `. After a longer time, the operator stops the job and resumes it with a new attempt; 0 =
            no limit.
        debugger: evaluator of the rules (`service_debugger.Debugger`). With "service" a rule needs no
            RuleEvaluatorImage, and Trainyard's evaluator evaluates the rules that the service cannot evaluate.
        budget_usd: limit of the cost of all attempts of the task together, by the on-demand price. An attempt
            that could exceed it is not started. None = no limit.
        max_cost_usd: cap of the billed cost of all attempts together, by the on-demand price. The amount left
            under the cap limits the `max_run` of each attempt. An attempt is stopped so early that the cap also
            covers the `stop_reserve_s` seconds that are reserved for its stop. None = no cap.
    """

    role: str
    output_path: str
    # what runs
    image_uri: str | None = None
    framework: str = "pytorch"
    framework_version: str | None = None
    py_version: str | None = None
    algorithm_name: str | None = None
    entry_point: str | None = None
    source_dir: str | None = None
    code_location: str | None = None
    requirements: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    distribution: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    container_entry_point: tuple[str, ...] = ()
    container_arguments: tuple[str, ...] = ()
    forward_sigterm: bool = False
    container_log_level: int = 20
    training_image_config: Mapping[str, Any] | None = None
    # where it runs
    instance_type: str | None = None
    instance_count: int | None = None
    instance_groups: tuple[InstanceGroup, ...] = ()
    instance_preferences: tuple[InstancePreference, ...] = ()
    instance_placement_config: Mapping[str, Any] | None = None
    training_plan: str | None = None
    volume_size: int = 30
    volume_kms_key: str | None = None
    keep_alive_period_in_seconds: int | None = None
    # how long and how it is paid
    max_run: int = 86400
    max_wait: int | None = None
    max_pending_time_in_seconds: int | None = None
    use_spot_instances: bool = False
    max_retry_attempts: int | None = None
    # what the operator does around it
    capacity_ladder: tuple[CapacityRung, ...] = ()
    heartbeat_timeout_s: int = 600
    max_quota_wait_s: int = DEFAULT_QUOTA_WAIT_S
    budget_usd: float | None = None
    max_cost_usd: float | None = None
    stop_reserve_s: int = STOP_RESERVE_S
    # data in and out
    inputs: Mapping[str, Any] = field(default_factory=dict, metadata={READ_EACH: read_channel})
    input_mode: str = "File"
    output_kms_key: str | None = None
    disable_output_compression: bool = False
    checkpoint_s3_uri: str | None = None
    checkpoint_local_path: str | None = None
    # network
    subnets: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    enable_network_isolation: bool = False
    encrypt_inter_container_traffic: bool = False
    # what is watched
    metric_definitions: tuple[MetricDefinition, ...] = ()
    enable_sagemaker_metrics: bool | None = None
    debugger: str = Debugger.OWN
    debugger_hook_config: Mapping[str, Any] | None = None
    rules: tuple[Mapping[str, Any], ...] = ()
    profiler_config: Mapping[str, Any] | None = None
    profiler_rules: tuple[Mapping[str, Any], ...] = ()
    disable_profiler: bool | None = None
    tensorboard_output_config: Mapping[str, Any] | None = None
    experiment_config: Mapping[str, Any] | None = None
    enable_remote_debug: bool | None = None
    enable_infra_check: bool | None = None
    enable_session_tag_chaining: bool | None = None
    model_package_config: Mapping[str, Any] | None = None
    mlflow_config: Mapping[str, Any] | None = None
    serverless_job_config: Mapping[str, Any] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    raw_request_overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the channels and check the fields of the spec.

        Raises:
            SpecError: fields are invalid; the error lists all faults.
        """
        channels, findings = read_each(read_channel, self.inputs, where="inputs")
        object.__setattr__(self, "inputs", channels)
        findings += chain.from_iterable(self.checks())
        if findings:
            raise SpecError(findings, subject="TrainingJobSpec")

    def checks(self) -> Iterator[Iterable[Finding]]:
        """Yield the findings of each rule, as one lazy iterable per rule."""
        return spec_checks(self)

    @property
    def program(self) -> str | None:
        """The Python program that the toolkit starts: the entry point, or a wrapper that passes `arguments` to it."""
        return ARGUMENTS_PROGRAM if self.arguments else self.entry_point

    @property
    def launch(self) -> Distribution | None:
        """The strategy of `distribution`; None for one process per instance without a launcher."""
        return read_distribution(self.distribution)
