"""Rules for a job with a built-in algorithm, checked before money is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding, near_matches
from trainyard.specs.built_in_algorithms import built_in_algorithm
from trainyard.specs.channel import TrainingInput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from trainyard.specs.built_in_algorithms import BuiltInAlgorithm, ValueRange
    from trainyard.specs.channel import Channel
    from trainyard.specs.training_job import TrainingJobSpec

IMAGES = "application/x-image"
GPU_LETTERS = ("p", "g")


def built_in_findings(spec: TrainingJobSpec) -> Iterator[Finding]:
    """Yield the faults of a job with a built-in algorithm and no script."""
    algorithm = _algorithm(spec)
    if algorithm is None:
        return
    yield from _hyperparameters(algorithm, spec.hyperparameters)
    yield from _channels(algorithm, spec.inputs)
    yield from _instances(algorithm, spec)
    if spec.distribution:
        yield Finding(
            where="distribution",
            what=f"is not supported by {algorithm.title}, which distributes the work over its instances itself",
            next_step="remove it and set instance_count",
        )


def is_built_in(spec: TrainingJobSpec) -> bool:
    """Return whether the job runs an algorithm of the table `ALGORITHMS`, without a script that replaces it.

    The table is in `trainyard.specs.built_in_algorithms`. It has only some of AWS's built-in algorithms.
    """
    return _algorithm(spec) is not None


def missing_hyperparameters(
    spec: TrainingJobSpec, *, searched: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield an error for each required hyperparameter that neither the job nor a search over `searched` sets."""
    algorithm = _algorithm(spec)
    if algorithm is None:
        return
    for name, allowed in algorithm.required.items():
        if name not in spec.hyperparameters and name not in searched:
            near = near_matches(name, list(spec.hyperparameters))
            yield Finding(
                where=f"hyperparameters.{name}",
                what=f"is required by {algorithm.title}",
                allowed=_range_text(allowed),
                next_step=f"did you misspell it as {near[0]!r}?" if near else None,
            )


def _algorithm(spec: TrainingJobSpec) -> BuiltInAlgorithm | None:
    if spec.entry_point or spec.container_entry_point or spec.algorithm_name:
        return None
    return built_in_algorithm(image_uri=spec.image_uri, framework=spec.framework)


def _hyperparameters(algorithm: BuiltInAlgorithm, given: Mapping[str, object]) -> Iterator[Finding]:
    for name, value in given.items():
        where = f"hyperparameters.{name}"
        allowed = {**algorithm.ranges, **algorithm.required}.get(name)
        if allowed is not None and not _is_in(value, allowed):
            yield Finding(
                where=where,
                what=f"is not a value that {algorithm.title} accepts",
                got=repr(value),
                allowed=_range_text(allowed),
            )
        choices = algorithm.choices.get(name, ())
        if choices and str(value) not in choices:
            yield Finding(
                where=where,
                what=f"is not a value that {algorithm.title} accepts",
                got=repr(value),
                allowed=", ".join(choices),
            )


def _is_in(value: object, allowed: ValueRange) -> bool:
    try:
        number = float(str(value))
    except ValueError:
        return False
    return allowed.low <= number <= allowed.high and (not allowed.is_whole or number.is_integer())


def _range_text(allowed: ValueRange) -> str:
    kind = "a whole number" if allowed.is_whole else "a number"
    if allowed.high == float("inf"):
        return f"{kind}, at least {allowed.low:g}"
    return f"{kind} from {allowed.low:g} to {allowed.high:g}"


def _channels(algorithm: BuiltInAlgorithm, channels: Mapping[str, Channel]) -> Iterator[Finding]:
    types = {
        name: channel.content_type
        for name, channel in channels.items()
        if isinstance(channel, TrainingInput)
    }
    is_loose = algorithm.content_types == (IMAGES,) or types.get("train") == IMAGES
    needed = (*algorithm.channels, *(algorithm.annotated if is_loose else ()))
    known = {*needed, *algorithm.annotated, *algorithm.optional_channels}
    for name in needed:
        if name not in channels:
            yield Finding(
                where=f"inputs.{name}",
                what=f"is required by {algorithm.title}"
                + (f" with content_type {IMAGES}" if name in algorithm.annotated else ""),
                next_step="add this channel to inputs",
            )
    for name, channel in channels.items():
        if name not in known:
            yield Finding(
                where=f"inputs.{name}",
                what=f"is not a channel of {algorithm.title}",
                allowed=", ".join(sorted(known)),
            )
        elif isinstance(channel, TrainingInput):
            yield from _channel(algorithm, name, channel)


def _channel(algorithm: BuiltInAlgorithm, name: str, channel: TrainingInput) -> Iterator[Finding]:
    given = (channel.content_type or "").lower().replace(" ", "")
    is_data = name in {"train", "validation", "test"} and channel.attribute_names == ()
    kinds = {given, given.partition(";")[0]}
    if is_data and given and not kinds & set(algorithm.content_types):
        yield Finding(
            where=f"inputs.{name}.content_type",
            what=f"is not read by {algorithm.title}",
            got=channel.content_type,
            allowed=", ".join(algorithm.content_types),
        )
    if name in algorithm.sharded_channels and channel.distribution != "ShardedByS3Key":
        yield Finding(
            where=f"inputs.{name}.distribution",
            what=f"must be ShardedByS3Key for {algorithm.title}",
            got=channel.distribution,
            next_step="set it to ShardedByS3Key",
        )


def _instances(algorithm: BuiltInAlgorithm, spec: TrainingJobSpec) -> Iterator[Finding]:
    types = {
        "instance_type": spec.instance_type,
        **{
            f"capacity_ladder[{n}]": rung.instance_type
            for n, rung in enumerate(spec.capacity_ladder)
        },
    }
    for where, instance_type in types.items():
        if instance_type is None or not instance_type.startswith("ml."):
            continue
        family = instance_type.split(".")[1]
        is_gpu = family.startswith(GPU_LETTERS)
        if (is_gpu and family not in algorithm.gpu_families) or (
            not is_gpu and not algorithm.on_cpu
        ):
            gpus = ", ".join(f"ml.{each}.*" for each in algorithm.gpu_families)
            yield Finding(
                where=where,
                what=f"is not an instance type that {algorithm.title} supports",
                got=instance_type,
                allowed=" or ".join(
                    part
                    for part in ("instances without GPUs" if algorithm.on_cpu else "", gpus)
                    if part
                ),
            )
    if not algorithm.is_parallel and (spec.instance_count or 1) > 1:
        yield Finding(
            where="instance_count",
            what=f"is more than {algorithm.title} supports",
            got=str(spec.instance_count),
            allowed="1",
            next_step="choose an instance type with more GPUs",
        )
