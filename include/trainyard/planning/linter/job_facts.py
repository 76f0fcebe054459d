"""Facts of a training job's spec for the linter: one set per instance type that the job may get."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import catalogue
from trainyard.catalog.strategy_support import Version, read_version
from trainyard.catalog.training_images import training_images
from trainyard.planning.linter.facts import JobFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.training_job import InstanceGroup, TrainingJobSpec

BUILT_IN_WAIT_S = 3600
_FRAMEWORK_PROFILING = {"MaxInitializationTime", "OverallFrameworkMetrics", "StepOutlier"}
_COMPILER = "sagemaker_training_compiler_enabled"
_ON = {True, "true", "True", "1"}
_BEFORE_TURING = {"NVIDIA K80", "NVIDIA V100"}
_IMAGE = re.compile(r"(?:.*/)?(?P<name>[^/:@]+)(?::(?P<version>\d+\.\d+)?[^@]*)?(?:@.*)?")
# AWS's images, whose tags begin with the library's version: `pytorch-training:2.2.0-gpu-py310`. Other tags are free.
# From PyTorch 2.11 on the repository is `pytorch`: `pytorch:2.13-cu133-amzn2023-sagemaker`.
_FRAMEWORK_IMAGE = re.compile(
    r"pytorch"
    r"|(?:huggingface-)?(?:pytorch|tensorflow)-(?:trcomp-)?training(?:-neuronx?)?"
    r"|sagemaker-(?:pytorch|tensorflow(?:-scriptmode)?)"
)
_BUILT_IN_IMAGES = {
    *("blazingtext", "factorization-machines", "forecasting-deepar", "image-classification"),
    *("ipinsights", "kmeans", "knn", "lda", "linear-learner", "ntm", "object-detection"),
    *("object2vec", "pca", "randomcutforest", "sagemaker-xgboost", "semantic-segmentation"),
    *("seq2seq", "xgboost"),
}
"""Repositories of the built-in algorithms (SDK v2 2.257.7, image_uri_config)."""
_LIBRARY_OF_FRAMEWORK = {"tensorflow": "tensorflow", "pytorch": "torch"}


def job_facts(spec: TrainingJobSpec) -> Iterator[JobFacts]:
    """Yield the facts of the job on each instance type that it may get.

    The types are the job's own type, the types of its capacity ladder, or the types of its instance
    preferences. If the job has instance groups, the only type is that of the group on which the strategy runs.
    """
    flags = {flag for flag, holds in _flags(spec).items() if holds}
    for where, instance_type, count, is_spot in _capacities(spec):
        instance = catalogue().types.get(instance_type)
        here = _place_flags(spec, instance_type=instance_type, count=count)
        if is_spot:
            here["spot"] = True
        facts = JobFacts(
            strategy=None if spec.launch is None else spec.launch.strategy,
            instance=instance,
            instance_type=instance_type,
            instance_count=count,
            framework=spec.framework,
            library=image_library(spec),
            image=image_name(spec.image_uri),
            flags=frozenset(flags | {flag for flag, holds in here.items() if holds}),
            where=where,
            inputs=spec.inputs,
            input_mode=spec.input_mode,
            hyperparameters=spec.hyperparameters,
            entry_point=spec.entry_point,
        )
        yield _with_ranks(facts)


def image_name(uri: str | None) -> str | None:
    """Return an image's repository name, such as `pytorch-training`; None without an image."""
    found = _IMAGE.fullmatch(uri or "")
    return found["name"] if found else None


def image_library(spec: TrainingJobSpec) -> tuple[str, Version] | None:
    """Return torch or tensorflow, and its version; None if either is not known.

    - If the tag of the job's image begins with a version, the tag gives the version and the image's name gives
      the library. The spec's framework and version are ignored. The result is None for an image that is not one
      of AWS's framework images.
    - If there is no such tag, the spec's framework and version give the result. If the spec has neither a
      version nor an image of its own, the version is that of the default image.
    """
    found = _IMAGE.fullmatch(spec.image_uri or "")
    if found and found["version"]:
        library = framework_of_image(found["name"])
        return (library, read_version(found["version"])) if library else None
    library = _LIBRARY_OF_FRAMEWORK.get(spec.framework)
    version = spec.framework_version or _default_version(spec)
    if library is None or version is None or not re.match(r"\d+\.\d+", version):
        return None
    return library, read_version(version)


def _default_version(spec: TrainingJobSpec) -> str | None:
    """Return the default image's version; None if the spec has its own image or algorithm, or no version is pinned."""
    has_own_image = bool(spec.image_uri or spec.algorithm_name)
    is_pinned = spec.launch is None or spec.launch.strategy.name != "smp_v2"
    return (
        None if has_own_image or not is_pinned else training_images().versions.get(spec.framework)
    )


def framework_of_image(name: str) -> str | None:
    """Return torch or tensorflow for the name of one of AWS's framework images; None for any other image."""
    found = _FRAMEWORK_IMAGE.fullmatch(name)
    if found is None:
        return None
    return "tensorflow" if "tensorflow" in name else "torch"


def _capacities(spec: TrainingJobSpec) -> Iterator[tuple[str, str, int, bool]]:
    """Yield (path, instance type, instance count, is spot) for each choice of instances that the job may get.

    The path is that of the choice in the spec, such as `capacity_ladder[1]`. It is empty for the job's own
    instance type, and for an instance group. If the job has instance groups, only the group on which the
    strategy runs is yielded.
    """
    if spec.instance_groups:
        group = _strategy_group(spec)
        yield "", group.instance_type, group.instance_count, spec.use_spot_instances
        return
    own = spec.instance_count or 1
    for index, rung in enumerate(spec.capacity_ladder):
        count = rung.instance_count or own
        yield f"capacity_ladder[{index}]", rung.instance_type, count, rung.use_spot_instances
    for index, choice in enumerate(spec.instance_preferences):
        yield (
            f"instance_preferences[{index}]",
            choice.instance_type,
            choice.instance_count or own,
            False,
        )
    if spec.instance_type:
        yield "", spec.instance_type, own, spec.use_spot_instances


def _strategy_group(spec: TrainingJobSpec) -> InstanceGroup:
    named = spec.launch.instance_groups if spec.launch else ()
    chosen = (each for each in spec.instance_groups if each.instance_group_name in named)
    return next(chosen, spec.instance_groups[0])


def _flags(spec: TrainingJobSpec) -> dict[str, bool]:
    """Return the linter's flags that do not depend on instances: True or False by the flag's name."""
    rules = [each.get("RuleParameters", {}) for each in spec.rules]
    profiled = {
        each.get("RuleParameters", {}).get("rule_to_invoke") for each in spec.profiler_rules
    }
    return {
        "built_in": bool(spec.algorithm_name)
        or (not spec.entry_point and image_name(spec.image_uri) in _BUILT_IN_IMAGES),
        "checkpoints": bool(spec.checkpoint_s3_uri),
        "debugger": bool(spec.debugger_hook_config or spec.rules),
        "debugger_actions": any("action_json" in each for each in rules),
        "entry_point": bool(spec.entry_point),
        "framework_profiling": bool(profiled & _FRAMEWORK_PROFILING),
        "heterogeneous": bool(spec.instance_groups),
        "long_wait": (spec.max_wait or 0) > BUILT_IN_WAIT_S,
        "network_isolation": spec.enable_network_isolation,
        "traffic_encryption": spec.encrypt_inter_container_traffic,
        "training_compiler": is_on(spec.hyperparameters, _COMPILER),
        "volume_key": bool(spec.volume_kms_key),
        "vpc": bool(spec.subnets),
        "warm_pool": bool(spec.keep_alive_period_in_seconds),
    }


def is_on(hyperparameters: Mapping[str, Any], name: str) -> bool:
    """Return whether a hyperparameter is set to true."""
    value = hyperparameters.get(name)
    return isinstance(value, (bool, str, int)) and value in _ON


def _place_flags(spec: TrainingJobSpec, *, instance_type: str, count: int) -> dict[str, bool]:
    """Return the linter's flags that depend on the instances, as a map from flag name to value."""
    types = catalogue().types
    instance = types.get(instance_type)
    others = [types.get(each.instance_type) for each in spec.instance_groups]
    return {
        "before_turing": bool(instance and instance.accelerator in _BEFORE_TURING),
        "efa": bool(instance and instance.has_efa),
        "local_storage": any(each and each.has_local_storage for each in (instance, *others)),
        "several_accelerators": bool(instance and instance.num_accelerators > 1),
        "several_hosts": count > 1 or sum(g.instance_count for g in spec.instance_groups) > 1,
        "several_instances": count > 1,
        "other_group_has_accelerators": any(each and each.num_accelerators for each in others),
    }


def _with_ranks(facts: JobFacts) -> JobFacts:
    """Return the facts with the flag `several_ranks` if several ranks train together."""
    together = facts.instance_count if facts.strategy is not None else 1
    is_several = together * (facts.ranks_per_instance or 1) > 1
    return replace(facts, flags=facts.flags | {"several_ranks"}) if is_several else facts
