"""`ScriptConf`: the params of one `train_own_script` run, checked beyond their JSON schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, not_an_s3_uri
from trainyard.specs.base_run_conf import BaseRunConf
from trainyard.specs.base_run_conf_rules import base_findings, choice_findings
from trainyard.specs.capacity_rung import INSTANCE_TYPE
from trainyard.specs.channel import read_channel
from trainyard.specs.distribution import read_distribution
from trainyard.specs.metrics import MetricDefinition  # noqa: TC001  # as above
from trainyard.specs.reading import FromMapping
from trainyard.specs.strategies.named import (
    AUTO,
    NAMED,
    PLAIN,
    TORCHRUN_NAME,
    named_distribution,
    takes_ranks,
)
from trainyard.specs.strategies.sections import read_instance_groups
from trainyard.specs.training_job import InstanceGroup, instances_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard.specs.capacity_rung import CapacityRung

CHOICES = {
    "framework": ("pytorch", "huggingface", "tensorflow", "xgboost", "sklearn", "mxnet"),
    "input_mode": ("File", "FastFile", "Pipe"),
    "strategy": (AUTO, *NAMED),
}
_INPUT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TORCHRUN_FRAMEWORKS = ("pytorch", "huggingface")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptConf(BaseRunConf, FromMapping):
    """Settings of one run of a user's own script, in addition to those of every run.

    Attributes:
        entry_point: the training script, a path within source_dir.
        source_dir: the folder of the script. Allowed are a path relative to the folder that holds Airflow's
            `dags`, an absolute path below one of the connection's `source_roots`, `s3://.../sourcedir.tar.gz`,
            and `git+https://...@<commit>`. The folder's requirements.txt is installed first.
        requirements: path in source_dir of the file that the training installs instead of requirements.txt.
        arguments: command line arguments of the script, passed unchanged before the hyperparameters.
        framework, framework_version, py_version: choice of AWS's image if image_uri is not set; None = the
            newest in the catalogue.
        strategy: name of the distribution (`trainyard.specs.strategies.named`). `auto` = torchrun for the
            frameworks pytorch and huggingface, and plain processes for others.
        distribution: the SDK estimator's `distribution` instead of a strategy; empty = one plain process on
            each instance. None = that of the strategy.
        instance_groups: groups of a heterogeneous cluster. The type and count of the group that `distribution`
            names, or of the first group, replace instance_type and instance_count. Empty = instances of one
            type.
        environment: environment variables of the container.
        inputs: mapping from channel name to `s3://...`, or to the fields of a channel on S3, FSx or EFS
            (`trainyard.specs.channel`).
        input_mode: input mode of channels without their own: `File`, `FastFile` or `Pipe`.
        subnets, security_group_ids: network of the training; empty = the connection's.
        metric_definitions: metrics that the service reads from the log: names, and regular expressions with one
            group.
        evaluation_entry_point: script of the processing job that evaluates the model; None = no evaluation.
        evaluation_inputs: further inputs of the evaluation's job: mapping from name to `s3://...`. Each is
            mounted at /opt/ml/processing/input/<name>.
        inference_entry_point: script with the handlers of the served model, such as model_fn. The training
            script must save it in `code/` of model.tar.gz. A serving image with AWS's inference toolkit runs
            it. None = the image's own handlers.
        inference_content_types: content types of the requests that the served model accepts.
        inference_instance_types: instance types that endpoints and batch transform may use; empty = not stated.
    """

    entry_point: str
    source_dir: str
    requirements: str | None = None
    arguments: tuple[str, ...] = ()
    framework: str = "pytorch"
    framework_version: str | None = None
    py_version: str | None = None
    strategy: str = AUTO
    distribution: Mapping[str, Any] | None = None
    instance_groups: tuple[InstanceGroup, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    input_mode: str = "File"
    subnets: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    metric_definitions: tuple[MetricDefinition, ...] = ()
    evaluation_entry_point: str | None = None
    evaluation_inputs: Mapping[str, str] = field(default_factory=dict)
    inference_entry_point: str | None = None
    inference_content_types: tuple[str, ...] = ("application/json",)
    inference_instance_types: tuple[str, ...] = ()

    def findings(self) -> Iterator[Finding]:
        """Yield every fault of the conf that can be found without other data."""
        yield from base_findings(self)
        yield from choice_findings(self, CHOICES)
        yield from _unset(self)
        yield from _unreadable(self)
        yield from _two_distributions(self)
        yield from _unread_ranks(self)
        yield from _groups(self)
        yield from _evaluation(self)
        yield from _serving(self)

    @property
    def launch(self) -> Mapping[str, Any]:
        """The training job's `distribution`: the given one, or that of the strategy."""
        if self.distribution is not None:
            return self.distribution
        name = self.strategy
        if name == AUTO:
            name = TORCHRUN_NAME if self.framework in TORCHRUN_FRAMEWORKS else PLAIN
        return named_distribution(name, processes_per_host=self.processes_per_host)

    @property
    def ranks_group(self) -> InstanceGroup | None:
        """The group that `distribution` names, or the first; None without groups."""
        try:
            named = read_instance_groups(self.distribution or {})
        except SpecError:
            named = ()  # `findings` reports it
        chosen = (each for each in self.instance_groups if each.instance_group_name in named)
        return next(chosen, next(iter(self.instance_groups), None))

    def instances_on(self, rung: CapacityRung) -> Mapping[str, int]:
        """Return the number of instances of each type on a capacity tier; with groups, those of all groups."""
        if self.instance_groups:
            return instances_of(self.instance_groups)
        return BaseRunConf.instances_on(self, rung)


def _unset(conf: ScriptConf) -> Iterator[Finding]:
    for name in ("entry_point", "source_dir"):
        if not getattr(conf, name).strip():
            yield Finding(
                where=name,
                what="is empty",
                next_step="set entry_point to the script and source_dir to its folder",
            )


def _unreadable(conf: ScriptConf) -> Iterator[Finding]:
    """Yield the errors found when the conf's channels (`inputs`) and its `distribution` are parsed."""
    readers: list[Callable[[], object]] = [
        *(
            lambda name=name, value=value: read_channel(value, where=f"inputs.{name}")
            for name, value in conf.inputs.items()
        ),
        lambda: read_distribution(conf.distribution or {}),
    ]
    for read in readers:
        try:
            read()
        except SpecError as error:
            yield from error.findings


def _two_distributions(conf: ScriptConf) -> Iterator[Finding]:
    if conf.strategy != AUTO and conf.distribution is not None:
        yield Finding(
            where="strategy",
            what="cannot be combined with distribution",
            got=conf.strategy,
            next_step=f"set strategy to {AUTO}, or leave distribution empty",
        )


def _unread_ranks(conf: ScriptConf) -> Iterator[Finding]:
    """Yield a finding if `processes_per_instance` is set but has no effect.

    This setting has an effect only if the conf has no `distribution`, and the conf's strategy accepts a number of
    ranks per instance.
    """
    if conf.processes_per_instance is None or conf.strategy not in CHOICES["strategy"]:
        return
    if conf.distribution is not None or not any(map(takes_ranks, conf.launch)):
        yield Finding(
            where="processes_per_instance",
            what="applies to the strategies of torchrun and MPI only, and only if distribution is empty",
            got=str(conf.processes_per_instance),
            next_step="leave processes_per_instance empty; if distribution is set, set processes_per_host "
            "in its section",
        )


def _groups(conf: ScriptConf) -> Iterator[Finding]:
    """Yield the faults of the instance groups: a capacity ladder beside them, a malformed type, or no instances."""
    if conf.instance_groups and conf.capacity_ladder:
        yield Finding(
            where="instance_groups",
            what="cannot be combined with capacity_ladder, whose tiers have instances of one type",
            next_step="remove one of them",
        )
    for index, group in enumerate(conf.instance_groups):
        if not re.fullmatch(INSTANCE_TYPE, group.instance_type):
            yield Finding(
                where=f"instance_groups[{index}].instance_type",
                what="is malformed",
                got=repr(group.instance_type),
                allowed="an instance type such as ml.m5.large",
            )
        if group.instance_count < 1:
            yield Finding(
                where=f"instance_groups[{index}].instance_count",
                what="is too small",
                got=str(group.instance_count),
                allowed="at least 1",
            )


def _serving(conf: ScriptConf) -> Iterator[Finding]:
    if conf.inference_image_uri is None:
        for name in ("inference_entry_point", "inference_instance_types"):
            if value := getattr(conf, name):
                yield Finding(
                    where=name,
                    what="needs an inference_image_uri",
                    got=str(value),
                    next_step="set inference_image_uri to the image that serves the model, or remove this field",
                )
    if not conf.inference_content_types:
        yield Finding(
            where="inference_content_types",
            what="is empty",
            next_step="state the content types of requests, such as application/json or text/csv",
        )
    for name in conf.inference_instance_types:
        if not re.fullmatch(INSTANCE_TYPE, name):
            yield Finding(
                where="inference_instance_types",
                what="has a malformed instance type",
                got=repr(name),
                allowed="types such as ml.m5.large",
            )


def _evaluation(conf: ScriptConf) -> Iterator[Finding]:
    if conf.evaluation_entry_point is None:
        for name in (
            "evaluation_inputs",
            "evaluation_instance_type",
            "evaluation_max_run_s",
            "evaluation_volume_size_gb",
        ):
            if value := getattr(conf, name):
                yield Finding(
                    where=name,
                    what="needs an evaluation_entry_point",
                    got=str(value),
                    next_step="set evaluation_entry_point to the script that evaluates the model, or remove this field",
                )
    for name, uri in conf.evaluation_inputs.items():
        if not str(uri).startswith("s3://"):
            yield not_an_s3_uri(f"evaluation_inputs.{name}", uri)
        if not _INPUT_NAME.fullmatch(name):
            yield Finding(
                where=f"evaluation_inputs.{name}",
                what="is not a valid name of an input",
                allowed="up to 64 letters, digits, . _ and -",
            )
        if name in {"model", "code"}:
            yield Finding(
                where=f"evaluation_inputs.{name}",
                what="is the name of an input that every evaluation job has",
                next_step="choose another name",
            )
