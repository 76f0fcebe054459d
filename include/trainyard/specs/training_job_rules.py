"""Rules for one training job spec that need no other data. Each fault is one finding.

Limits are those of CreateTrainingJob (API reference and botocore, November 2026).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from trainyard.catalog.instances import volume_findings
from trainyard.errors import Finding, not_an_s3_uri
from trainyard.specs.built_in_rules import built_in_findings
from trainyard.specs.capacity_rung import TRAINING_PLAN, malformed_plan
from trainyard.specs.channel import FileSystemInput, TrainingInput
from trainyard.specs.distribution_rules import distribution_findings, num_launcher_hyperparameters
from trainyard.specs.limits import MAX_WARM_POOL_S, MONEY_FIELDS, number_findings
from trainyard.specs.run_conf_ladder import rung_findings
from trainyard.specs.serverless_rules import serverless_findings
from trainyard.specs.service_debugger import debugger_findings
from trainyard.specs.strategies.deepspeed import HYPERPARAMETER as DS_CONFIG, deepspeed_findings
from trainyard.specs.strategies.parameters import MAX_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.specs.training_job import TrainingJobSpec

MAX_HYPERPARAMETERS = 100
MAX_INSTANCE_GROUPS = 5
"""Most groups of one job (ResourceConfig.InstanceGroups)."""
MAX_KEY_CHARACTERS = 256
# AWS bounds the waiting of built-in algorithms that do not checkpoint by an hour ("Managed Spot Training in Amazon
# SageMaker AI", read November 2026) and advises checkpoints for longer jobs; so much work may be lost at most.
MAX_RUN_WITHOUT_CHECKPOINTS_S = 3600
ADDRESSES = ("output_path", "checkpoint_s3_uri", "code_location")
"""Fields with an S3 prefix."""
LEAST = {"volume_size": 1, "max_run": 1, "heartbeat_timeout_s": 0, "max_quota_wait_s": 0}
"""Smallest value by field."""
CODE_CHANNEL = "code"
"""Channel with the code, for a container in network isolation, which cannot download it."""
RESERVED_HYPERPARAMETERS = "sagemaker_"
ARGUMENTS = "trainyard_arguments"
"""Hyperparameter with the entry point and its `arguments`."""
ARGUMENTS_PROGRAM = f"{ARGUMENTS}.py"
"""Program in the code archive that starts the entry point with its `arguments`."""
TRAINING_COMPILER = "sagemaker_training_compiler_"
"""Prefix of Training Compiler's two hyperparameters, which the user may set; the linter checks their combination."""
# Script mode adds these beside the strategy's: program, submit_directory, log_level, job_name, region, model_dir.
NUM_SCRIPT_MODE_HYPERPARAMETERS = 6


def spec_checks(spec: TrainingJobSpec) -> Iterator[Iterator[Finding]]:
    """Yield the findings of each rule for a training job spec, as one lazy iterator per rule.

    On a partial spec (`reading.check_spec`), a rule ends at the first missing field that it reads.
    So there are many rules, each of which reads few fields.
    """
    yield _code(spec)
    yield _forwarded(spec)
    yield _bare_source(spec)
    yield _requirements(spec)
    yield _arguments(spec)
    yield distribution_findings(spec)
    yield _cluster(spec)
    yield _count(spec)
    yield _groups(spec)
    yield _volume(spec)
    for name, least in LEAST.items():
        yield _at_least(spec, name, least)
    for name in MONEY_FIELDS:
        yield number_findings(spec, only=(name,))
    yield _uncapped(spec)
    yield _spot(spec)
    yield _unsaved_spot(spec)
    yield _ladder(spec)
    yield _training_plan(spec)
    yield _warm_pool(spec)
    yield _network(spec)
    yield _groups_of_channels(spec)
    yield _hyperparameters(spec)
    for name in ADDRESSES:
        yield _address(spec, name)
    yield _local_checkpoints(spec)
    yield debugger_findings(spec)
    yield built_in_findings(spec)
    yield serverless_findings(spec)


def _code(spec: TrainingJobSpec) -> Iterator[Finding]:
    if spec.algorithm_name and spec.image_uri:
        yield Finding(
            where="image_uri",
            what="cannot be combined with algorithm_name",
            next_step="remove one of them",
        )
    if spec.entry_point and spec.container_entry_point:
        yield Finding(
            where="entry_point",
            what="needs the framework toolkit, but container_entry_point replaces the toolkit",
            next_step="remove container_entry_point, or remove entry_point and name the script in container_arguments",
        )


def _forwarded(spec: TrainingJobSpec) -> Iterator[Finding]:
    if spec.forward_sigterm and (not spec.entry_point or spec.container_arguments):
        yield Finding(
            where="forward_sigterm",
            what="needs an entry_point that the toolkit starts, and cannot be combined with container_arguments",
            next_step="set entry_point and remove container_arguments; or set forward_sigterm to false, "
            "and forward SIGTERM in the container's own program",
        )


def _bare_source(spec: TrainingJobSpec) -> Iterator[Finding]:
    if spec.source_dir and not spec.entry_point:
        yield Finding(
            where="source_dir", what="is set, but entry_point is not", next_step="set entry_point"
        )


def _requirements(spec: TrainingJobSpec) -> Iterator[Finding]:
    if spec.requirements is None:
        return
    if not spec.entry_point:
        yield Finding(
            where="requirements",
            what="need an entry_point, because the framework toolkit installs them",
            next_step="set entry_point, or install the packages in the image",
        )
    if (spec.source_dir or "").startswith("s3://"):
        yield Finding(
            where="requirements",
            what="need a source folder or repository, because Trainyard packs one of its files as requirements.txt",
            got=str(spec.source_dir),
            next_step="set source_dir to the folder or repository of the code, or remove requirements "
            "and pack that file into the archive as requirements.txt",
        )


def _arguments(spec: TrainingJobSpec) -> Iterator[Finding]:
    if not spec.arguments:
        return
    if not spec.entry_point:
        yield Finding(
            where="arguments",
            what="need an entry_point",
            next_step="set entry_point, or use container_arguments",
        )
    elif not spec.entry_point.endswith(".py"):
        yield Finding(
            where="arguments",
            what="need a Python script as entry_point",
            got=spec.entry_point,
            next_step="set hyperparameters instead, or start the program from a Python script",
        )
    if (spec.source_dir or "").startswith("s3://"):
        yield Finding(
            where="arguments",
            what="need a source folder or repository, because Trainyard adds a program there to pass the arguments "
            "to the script",
            got=str(spec.source_dir),
            next_step="set source_dir to the folder or repository of the code, or use hyperparameters",
        )
    size = len(json.dumps([spec.entry_point, *spec.arguments]))
    if size > MAX_CHARACTERS:
        yield Finding(
            where="arguments",
            what="are too long as JSON",
            got=f"{size} characters",
            allowed=f"at most {MAX_CHARACTERS}",
            next_step="put them into a file in the source folder or in a channel",
        )


def _cluster(spec: TrainingJobSpec) -> Iterator[Finding]:
    ways = {
        "instance_type": spec.instance_type is not None,
        "instance_groups": bool(spec.instance_groups),
        "instance_preferences": bool(spec.instance_preferences),
        "capacity_ladder": bool(spec.capacity_ladder),
    }
    chosen = [name for name, is_set in ways.items() if is_set]
    if len(chosen) > 1:
        yield Finding(
            where=chosen[0],
            what=f"cannot be combined with {', '.join(chosen[1:])}",
            next_step="set only one of them",
        )
    if not chosen and not spec.serverless_job_config:
        yield Finding(
            where="instance_type",
            what="is required (or instance_groups, instance_preferences or capacity_ladder)",
            next_step="set one of these fields",
        )
    if spec.use_spot_instances and spec.instance_preferences:
        yield Finding(
            where="use_spot_instances",
            what="cannot be combined with instance_preferences, which SageMaker supports for on-demand jobs only",
            next_step="remove one of them",
        )


def _count(spec: TrainingJobSpec) -> Iterator[Finding]:
    if spec.instance_count is not None and spec.instance_count < 1:
        yield _below("instance_count", spec.instance_count, 1)
    if spec.instance_groups and spec.instance_count is not None:
        yield Finding(
            where="instance_count",
            what="cannot be combined with instance_groups",
            next_step="set the instance_count of each group instead",
        )


def _volume(spec: TrainingJobSpec) -> Iterator[Finding]:
    types = [spec.instance_type] if spec.instance_type else []
    types += [each.instance_type for each in spec.instance_groups]
    types += [each.instance_type for each in spec.instance_preferences]
    types += [each.instance_type for each in spec.capacity_ladder]
    for name in dict.fromkeys(types):
        yield from volume_findings(spec.volume_size, name, where="volume_size")


def _groups(spec: TrainingJobSpec) -> Iterator[Finding]:
    names = [each.instance_group_name for each in spec.instance_groups]
    if len(names) > MAX_INSTANCE_GROUPS:
        yield Finding(
            where="instance_groups",
            what="are too many",
            got=str(len(names)),
            allowed=f"at most {MAX_INSTANCE_GROUPS}",
        )
    elif repeated := [each for each in dict.fromkeys(names) if names.count(each) > 1]:
        yield Finding(
            where="instance_groups",
            what="contain several groups with the same name",
            got=", ".join(map(repr, repeated)),
            next_step="give each group its own name",
        )
    for index, group in enumerate(spec.instance_groups):
        if group.instance_count < 1:
            yield _below(f"instance_groups[{index}].instance_count", group.instance_count, 1)


def _at_least(spec: TrainingJobSpec, name: str, least: int) -> Iterator[Finding]:
    if (value := getattr(spec, name)) < least:
        yield _below(name, value, least)


def _uncapped(spec: TrainingJobSpec) -> Iterator[Finding]:
    """Yield an error for each setting with a cost that `max_cost_usd` cannot limit."""
    if spec.max_cost_usd is None:
        return
    if spec.instance_preferences:
        yield Finding(
            where="max_cost_usd",
            what="cannot be combined with instance_preferences, because SageMaker chooses the instance type",
            next_step="set instance_type, instance_groups or capacity_ladder instead, or remove max_cost_usd",
        )
    if spec.keep_alive_period_in_seconds:
        yield Finding(
            where="keep_alive_period_in_seconds",
            what="cannot be combined with max_cost_usd, because a warm pool also costs money after its job",
            got=str(spec.keep_alive_period_in_seconds),
            next_step="remove one of them",
        )


def _spot(spec: TrainingJobSpec) -> Iterator[Finding]:
    is_spot = spec.use_spot_instances or any(r.use_spot_instances for r in spec.capacity_ladder)
    if spec.use_spot_instances and spec.max_wait is None:
        yield Finding(
            where="max_wait",
            what="is required for spot instances",
            allowed=f"seconds, at least max_run ({spec.max_run})",
            next_step="set it to the longest time that the wait for capacity and the training may take together",
        )
    if spec.max_wait is not None and not is_spot:
        yield Finding(
            where="max_wait",
            what="is allowed for spot instances only",
            got=str(spec.max_wait),
            next_step="set use_spot_instances, or remove max_wait",
        )
    if is_spot and spec.max_wait is not None and spec.max_wait < spec.max_run:
        yield Finding(
            where="max_wait",
            what="is shorter than max_run",
            got=str(spec.max_wait),
            allowed=f"at least {spec.max_run}",
        )


def _unsaved_spot(spec: TrainingJobSpec) -> Iterator[Finding]:
    is_spot = spec.use_spot_instances or any(r.use_spot_instances for r in spec.capacity_ladder)
    if is_spot and spec.max_run > MAX_RUN_WITHOUT_CHECKPOINTS_S and not spec.checkpoint_s3_uri:
        yield Finding(
            where="checkpoint_s3_uri",
            what="is required for long spot jobs, because an interruption would lose the whole training",
            got=f"max_run {spec.max_run}",
            allowed=f"max_run of at most {MAX_RUN_WITHOUT_CHECKPOINTS_S} s without checkpoints",
            next_step="set checkpoint_s3_uri and save checkpoints, lower max_run, or set use_spot_instances to false",
        )


def _ladder(spec: TrainingJobSpec) -> Iterator[Finding]:
    if not spec.capacity_ladder:
        return
    yield from rung_findings(spec.capacity_ladder)
    if spec.use_spot_instances:
        yield Finding(
            where="use_spot_instances",
            what="cannot be combined with capacity_ladder",
            next_step="remove it, and set use_spot_instances in each tier of capacity_ladder",
        )


def _training_plan(spec: TrainingJobSpec) -> Iterator[Finding]:
    plan = spec.training_plan
    if plan is not None and not re.fullmatch(TRAINING_PLAN, plan):
        yield malformed_plan(plan)
    if plan is not None and spec.capacity_ladder:
        yield Finding(
            where="training_plan",
            what="cannot be combined with capacity_ladder",
            got=plan,
            next_step="remove it, and set training_plan in a tier of capacity_ladder",
        )
    if plan is not None and spec.use_spot_instances:
        yield Finding(
            where="training_plan",
            what="cannot be combined with use_spot_instances, because a plan reserves its instances",
            got=plan,
            next_step="remove one of them, or set capacity_ladder with a tier for each",
        )
    has_plan = plan is not None or any(each.training_plan for each in spec.capacity_ladder)
    if has_plan and spec.max_run > MAX_RUN_WITHOUT_CHECKPOINTS_S and not spec.checkpoint_s3_uri:
        yield Finding(
            where="checkpoint_s3_uri",
            what="is required for long jobs in a training plan, because the training would be lost when a "
            "window of the plan ends",
            got=f"max_run {spec.max_run}",
            allowed=f"max_run of at most {MAX_RUN_WITHOUT_CHECKPOINTS_S} s without checkpoints",
            next_step="set checkpoint_s3_uri and save checkpoints, or lower max_run",
        )


def _warm_pool(spec: TrainingJobSpec) -> Iterator[Finding]:
    seconds = spec.keep_alive_period_in_seconds
    if not seconds:
        return
    where = "keep_alive_period_in_seconds"
    if not 0 <= seconds <= MAX_WARM_POOL_S:
        yield Finding(
            where=where,
            what="is out of range",
            got=str(seconds),
            allowed=f"0 to {MAX_WARM_POOL_S} seconds",
        )
    if spec.use_spot_instances or any(r.use_spot_instances for r in spec.capacity_ladder):
        yield Finding(
            where=where,
            what="cannot be combined with spot instances",
            next_step="remove one of them",
        )
    if spec.instance_groups:
        yield Finding(
            where=where,
            what="cannot be combined with instance_groups",
            next_step="remove one of them",
        )


def _network(spec: TrainingJobSpec) -> Iterator[Finding]:
    if bool(spec.subnets) != bool(spec.security_group_ids):
        yield missing_network(spec.subnets, spec.security_group_ids)


def unreachable_inputs(spec: TrainingJobSpec) -> Iterator[Finding]:
    """Yield an error for each channel on a file system, if the job has no network.

    Args:
        spec: the job, with the connection's defaults.
    """
    for name, channel in spec.inputs.items():
        if isinstance(channel, FileSystemInput) and not spec.subnets:
            yield Finding(
                where=f"inputs.{name}",
                what="is a file system, which a job can reach only inside a VPC",
                got="no subnets, neither in the job's settings nor in the connection's job_defaults",
                next_step="set subnets and security_group_ids",
            )


def missing_network(subnets: Sequence[str], security_group_ids: Sequence[str]) -> Finding:
    """Return the finding for a network with subnets only, or with security groups only."""
    missing, given = "subnets", "security_group_ids"
    if subnets:
        missing, given = given, missing
    return Finding(
        where=missing,
        what="is required, because a network needs both subnets and security groups",
        got=f"only {given}: {', '.join(subnets or security_group_ids)}",
        allowed="both or neither",
        next_step=f"set {missing}, or remove {given}",
    )


def _groups_of_channels(spec: TrainingJobSpec) -> Iterator[Finding]:
    channels = spec.inputs
    known = {group.instance_group_name for group in spec.instance_groups}
    named = {n: c.instance_groups for n, c in channels.items() if isinstance(c, TrainingInput)}
    for name, groups in named.items():
        for group in groups:
            if group not in known:
                yield Finding(
                    where=f"inputs.{name}.instance_groups",
                    what="names a group that is not an instance group of this job",
                    got=repr(group),
                    allowed=", ".join(sorted(known))
                    or "no group, because the job has no instance_groups",
                )
    if spec.entry_point and spec.enable_network_isolation and CODE_CHANNEL in channels:
        yield Finding(
            where=f"inputs.{CODE_CHANNEL}",
            what="is reserved for the code of jobs with network isolation",
            next_step="rename your channel",
        )
    if any(named.values()) and not all(named.values()):
        bare = ", ".join(repr(name) for name, groups in named.items() if not groups)
        yield Finding(
            where="inputs",
            what="must name instance_groups on every channel or on none",
            got=f"no instance_groups on {bare}",
            next_step="set instance_groups on each channel, or remove it from the other channels",
        )


def _hyperparameters(spec: TrainingJobSpec) -> Iterator[Finding]:
    taken = NUM_SCRIPT_MODE_HYPERPARAMETERS + num_launcher_hyperparameters(spec)
    taken += bool(spec.arguments)
    room = MAX_HYPERPARAMETERS - (taken if spec.entry_point else 0)
    if len(spec.hyperparameters) > room:
        yield Finding(
            where="hyperparameters",
            what="are too many",
            got=str(len(spec.hyperparameters)),
            allowed=f"at most {room}",
            next_step="put the rest into a file in a channel",
        )
    for key, value in spec.hyperparameters.items():
        where = f"hyperparameters.{key}"
        is_reserved = key.startswith(RESERVED_HYPERPARAMETERS)
        if spec.entry_point and is_reserved and not key.startswith(TRAINING_COMPILER):
            yield Finding(
                where=where, what="is a reserved name of the toolkit", next_step="rename it"
            )
        if not 0 < len(key) <= MAX_KEY_CHARACTERS:
            yield Finding(
                where=where,
                what="has a name that is empty or too long",
                got=f"{len(key)} characters",
                allowed=f"1 to {MAX_KEY_CHARACTERS} characters",
                next_step="rename it",
            )
        yield from _hyperparameter_value(where, value)
    if DS_CONFIG in spec.hyperparameters:
        yield from deepspeed_findings(spec.hyperparameters[DS_CONFIG])


def _hyperparameter_value(where: str, value: object) -> Iterator[Finding]:
    try:
        size = len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        yield Finding(where=where, what=f"is not JSON ({error})", got=repr(value)[:80])
        return
    if size > MAX_CHARACTERS:
        yield Finding(
            where=where,
            what="is too long as JSON",
            got=f"{size} characters",
            allowed=f"at most {MAX_CHARACTERS}",
            next_step="put it into a file in a channel",
        )


def _address(spec: TrainingJobSpec, name: str) -> Iterator[Finding]:
    uri = getattr(spec, name)
    if uri is not None and not uri.startswith("s3://"):
        yield not_an_s3_uri(name, uri)


def _local_checkpoints(spec: TrainingJobSpec) -> Iterator[Finding]:
    if spec.checkpoint_local_path and not spec.checkpoint_s3_uri:
        yield Finding(
            where="checkpoint_local_path",
            what="needs checkpoint_s3_uri, the S3 prefix of the checkpoints",
            next_step="set checkpoint_s3_uri",
        )


def _below(where: str, got: int, least: int) -> Finding:
    return Finding(where=where, what="is too small", got=str(got), allowed=f"at least {least}")
