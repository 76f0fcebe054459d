"""Rules for a training job spec's distribution that do not depend on the instance type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError
from trainyard.specs.distribution import Distribution, read_distribution
from trainyard.specs.strategies.strategy import Launcher, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.training_job import TrainingJobSpec

MULTI_WORKER_MIRRORED_SINCE = (2, 9)
"""First TensorFlow version with the strategy (SDK v2, `_validate_mwms_config`)."""
_MP_PARAMETERS = "mp_parameters"


def distribution_findings(spec: TrainingJobSpec) -> Iterator[Finding]:
    """Yield every fault of the spec's distribution itself, and of its combination with other fields.

    These fields are the entry point, the framework and the instance groups.
    """
    if spec.distribution and not spec.entry_point:
        yield Finding(
            where="distribution",
            what="needs an entry_point to start",
            next_step="set entry_point",
        )
    try:
        launch = read_distribution(spec.distribution)
    except SpecError as error:
        yield from error.findings
        return
    if launch is not None:
        yield from _entry_point(spec, launch)
        yield from _framework(spec, launch)
        yield from _groups(spec, launch)


def num_launcher_hyperparameters(spec: TrainingJobSpec) -> int:
    """Return the number of hyperparameters that the distribution adds; 0 if it is invalid."""
    try:
        launch = read_distribution(spec.distribution)
    except SpecError:
        return 0
    target = Target(framework=spec.framework, instance_type=spec.instance_type)
    return 0 if launch is None else len(launch.hyperparameters(target))


def _entry_point(spec: TrainingJobSpec, launch: Distribution) -> Iterator[Finding]:
    is_python = not spec.entry_point or spec.entry_point.endswith(".py")
    if launch.strategy.launcher is Launcher.TORCHRUN and not is_python:
        yield Finding(
            where="entry_point",
            what="must be a Python file for torchrun",
            got=spec.entry_point,
            allowed="*.py",
        )
    if _MP_PARAMETERS in spec.hyperparameters and launch.strategy.name.startswith("smp"):
        yield Finding(
            where=f"hyperparameters.{_MP_PARAMETERS}",
            what="is reserved, because the distribution sets it",
            next_step="set distribution.smdistributed.modelparallel.parameters instead",
        )


def _framework(spec: TrainingJobSpec, launch: Distribution) -> Iterator[Finding]:
    if spec.framework not in launch.strategy.frameworks:
        yield Finding(
            where="framework",
            what=f"does not support the strategy {launch.strategy.name}",
            got=spec.framework,
            allowed=", ".join(launch.strategy.frameworks),
            next_step="choose another strategy; if image_uri is set, set framework to the framework of that image",
        )
    version = re.match(r"(\d+)\.(\d+)", spec.framework_version or "")
    is_old = version and tuple(map(int, version.groups())) < MULTI_WORKER_MIRRORED_SINCE
    if launch.strategy.launcher is Launcher.MULTI_WORKER_MIRRORED and is_old:
        yield Finding(
            where="framework_version",
            what="is too old for multi_worker_mirrored_strategy",
            got=spec.framework_version,
            allowed="2.9 or later",
        )


def _groups(spec: TrainingJobSpec, launch: Distribution) -> Iterator[Finding]:
    where, known = (
        "distribution.instance_groups",
        [g.instance_group_name for g in spec.instance_groups],
    )
    unknown = [each for each in launch.instance_groups if each not in known]
    if unknown:
        yield Finding(
            where=where,
            what="names a group that is not an instance group of this job",
            got=repr(unknown[0]),
            allowed=", ".join(known) or "no group, because the job has no instance_groups",
        )
    if len(known) > 1 and not launch.instance_groups:
        yield Finding(
            where=where,
            what="is required, because the job has several instance groups and a strategy runs on only one of them",
            allowed=", ".join(known),
            next_step=f'add "instance_groups": ["{known[-1]}"] to distribution, or set distribution to {{}} for one '
            "plain process on each instance",
        )
