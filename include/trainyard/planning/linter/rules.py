"""Linter rules that need arithmetic.

They check devices, versions, ranks, degrees, channels, instances, and the memory in which scripts create a model.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import catalogue
from trainyard.errors import Finding, Severity
from trainyard.planning.linter.job_facts import framework_of_image, is_on
from trainyard.planning.phases import WHOLE_MODEL_SCRIPTS, whole_model_peaks
from trainyard.planning.shapes import TRAINYARD, ModelShape, shape_settings
from trainyard.specs.channel import TrainingInput
from trainyard.specs.strategies.smp_v1 import SmModelParallelV1
from trainyard.specs.strategies.smp_v2 import SmModelParallelV2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.catalog.strategy_support import StrategySupport, SupportTable, Version
    from trainyard.planning.linter.facts import JobFacts

_DEGREES = "distribution.smdistributed.modelparallel.parameters"
_DEGREES_SOURCES = {
    "smp_v1": "SDK v2 documentation `smd_model_parallel_general.rst`",
    "smp_v2": "developer guide, distributed-model-parallel-v2-reference; its pages on context and expert parallelism",
}
_API = "API reference, Channel and S3DataSource"


def rule_findings(facts: JobFacts, table: SupportTable) -> Iterator[Finding]:
    """Yield the findings of all rules about a job."""
    support = table.strategies.get(facts.strategy.name) if facts.strategy else None
    if support:
        yield from _device(facts, support)
        yield from _instance_types(facts, support)
        yield from _versions(facts, support)
        yield from _image(facts, support)
    yield from _retired(facts)
    yield from _ranks(facts)
    yield from _degrees(facts)
    yield from _offloading(facts)
    yield from _channels(facts)
    yield from _one_larger(facts)
    yield from _whole_model(facts)


def _retired(facts: JobFacts) -> Iterator[Finding]:
    if facts.instance and facts.instance.is_retired:
        yield Finding(
            where="instance_type",
            what="is a retired instance type, whose capacity may end without notice",
            got=facts.instance_type,
            next_step="choose a newer type, such as ml.g5 or ml.p4d",
            severity=Severity.WARNING,
            why=f"EC2 no longer lists {facts.instance_type.removeprefix('ml.')}",
            source="EC2, DescribeInstanceTypes, as stored in moto 5.2.5",
        )


def _device(facts: JobFacts, support: StrategySupport) -> Iterator[Finding]:
    if facts.device and facts.device not in support.devices:
        yield Finding(
            where="instance_type",
            what=f"is a {facts.device} instance, which {_name(facts)} does not run on",
            got=facts.instance_type,
            allowed=", ".join(support.instance_types or support.devices),
            next_step="choose another instance type, or torch_distributed, which runs on every device",
            why=f"the launcher and collectives of {_name(facts)} need {' or '.join(support.devices)} instances",
            source=support.source,
        )


def _instance_types(facts: JobFacts, support: StrategySupport) -> Iterator[Finding]:
    if support.instance_types is None or facts.device not in support.devices:
        return
    if facts.instance_type not in support.instance_types:
        yield Finding(
            where="instance_type",
            what=f"is not supported by {_name(facts)}",
            got=facts.instance_type,
            allowed=", ".join(support.instance_types),
            next_step="choose one of these, or torch_distributed, which uses NCCL",
            why=f"{_name(facts)} is built for the network of the allowed instance types",
            source=support.source,
        )
    elif facts.instance_type in support.legacy_instance_types:
        yield Finding(
            where="instance_type",
            what=f"is an instance type for which {_name(facts)} is no longer developed",
            got=facts.instance_type,
            next_step="choose ml.p4d.24xlarge or ml.p4de.24xlarge",
            severity=Severity.WARNING,
            why=support.legacy_instance_types[facts.instance_type],
            source=support.source,
        )


def _versions(facts: JobFacts, support: StrategySupport) -> Iterator[Finding]:
    if facts.library is None or facts.library[0] not in support.versions:
        return
    library, version = facts.library
    first, last = support.versions[library]
    if version < first or (last is not None and version > last):
        yield Finding(
            where="framework_version" if facts.image is None else "image_uri",
            what=f"has a version of {library} that {_name(facts)} does not support",
            got=_shown(version),
            allowed=f"{_shown(first)} to {_shown(last)}" if last else f"{_shown(first)} or later",
            next_step="choose an image with a supported version"
            + (
                ""
                if _name(facts) == "torch_distributed"
                else ", or torch_distributed with native DDP or FSDP"
            ),
            why=f"support for {_name(facts)} is built into the images of the allowed versions only",
            source=support.source,
        )


def _image(facts: JobFacts, support: StrategySupport) -> Iterator[Finding]:
    """Yield a finding if the job names an image that is not known to have the strategy's library.

    For one of AWS's framework images, the finding is an error, because the image lacks the library. For any
    other image, the finding is a warning, because the image may have the library. Yield nothing if the job
    names no image, or if all framework images have the library.
    """
    if facts.image is None or not support.images or facts.image in support.images:
        return
    is_aws = framework_of_image(facts.image) is not None
    yield Finding(
        where="image_uri",
        what=f"is an AWS image without the library of {_name(facts)}"
        if is_aws
        else f"names an image that may lack the library of {_name(facts)}",
        got=facts.image,
        allowed=", ".join(support.images),
        next_step="remove image_uri and set framework_version, which selects an image with the library",
        severity=Severity.ERROR if is_aws else Severity.WARNING,
        why="AWS ships the library only in the allowed images"
        if is_aws
        else "AWS ships the library only in the allowed images, so another image has it only if it is based on one of "
        "them or installs it",
        source=support.source,
    )


def _ranks(facts: JobFacts) -> Iterator[Finding]:
    """Yield a finding if processes_per_host is not the number of GPUs or NeuronCores."""
    asked, instance = facts.strategy.processes_per_host if facts.strategy else None, facts.instance
    if asked is None or instance is None or not instance.num_accelerators:
        return
    has, unit = instance.num_ranks, "NeuronCores" if instance.is_trainium else "accelerators"
    if asked == has or _name(facts) in _ONE_PROCESS:
        return
    is_more = asked > has
    # Not every process of mpirun trains on a GPU: simulators and data servers are ranks, too.
    shares_by_nccl = is_more and _name(facts) != "mpi"
    yield Finding(
        where="distribution.processes_per_host",
        what=f"is more than the instance's number of {unit}" if is_more else f"leaves {unit} idle",
        got=f"{asked} on {facts.instance_type} with {has} {unit}",
        next_step=f"set it to {has}, or remove it"
        if shares_by_nccl or not is_more
        else f"set it to {has} if every rank trains on a GPU",
        severity=Severity.ERROR if shares_by_nccl else Severity.WARNING,
        why=f"two ranks cannot share a {'NeuronCore' if instance.is_trainium else 'GPU under NCCL'}"
        if is_more
        else "every accelerator is paid for",
        source="NCCL user guide; catalogue",
    )


_ONE_PROCESS = {"parameter_server", "multi_worker_mirrored_strategy"}


def _degrees(facts: JobFacts) -> Iterator[Finding]:
    """Yield an error for each product of model-parallel degrees that does not divide the number of ranks."""
    if not isinstance(facts.strategy, (SmModelParallelV1, SmModelParallelV2)):
        return
    if facts.ranks_per_instance is None:
        return
    ranks, degrees = facts.instance_count * facts.ranks_per_instance, facts.strategy.degrees
    for names in facts.strategy.groupings:
        sizes = {name: max(1, degrees[name]) for name in names}
        product = prod(sizes.values())
        if ranks % product == 0:
            continue
        yield Finding(
            where=_DEGREES,
            what="have degrees whose product does not divide the number of ranks",
            got=f"{' x '.join(f'{name} {size}' for name, size in sizes.items())} = {product}, with {ranks} ranks",
            allowed=f"a product that divides {ranks}",
            next_step="change a degree, or the number of instances",
            why="every rank belongs to one group of each kind, and all groups are of one size",
            source=_DEGREES_SOURCES[facts.strategy.name],
        )


def _offloading(facts: JobFacts) -> Iterator[Finding]:
    """Yield a finding for activation offloading without activation checkpointing, which it requires."""
    if not isinstance(facts.strategy, SmModelParallelV2):
        return
    if not facts.strategy.parameters.get("sm_activation_offloading"):
        return
    if is_on(facts.hyperparameters, "activation_checkpointing"):
        return
    given = facts.hyperparameters.get("activation_checkpointing")
    yield Finding(
        where=f"{_DEGREES}.sm_activation_offloading",
        what="needs activation checkpointing, which the script must enable",
        got=None if given is None else f"hyperparameters.activation_checkpointing = {given!r}",
        next_step="wrap the layers with checkpoint_wrapper, and set hyperparameters.activation_checkpointing to true",
        severity=Severity.WARNING if given is None else Severity.ERROR,
        why="offloading applies only to the activations that checkpointing keeps between the recomputed layers",
        source="developer guide, model-parallel-core-features-v2-activation-offloading",
    )


def _channels(facts: JobFacts) -> Iterator[Finding]:
    """Yield findings about channels whose settings do not match their input mode."""
    read = {name: each for name, each in facts.inputs.items() if isinstance(each, TrainingInput)}
    modes = {name: each.input_mode or facts.input_mode for name, each in read.items()}
    ranks = facts.ranks_per_instance or 1
    has_one_each = list(modes.values()).count("Pipe") >= ranks
    for name, channel in read.items():
        mode, where = modes[name], f"inputs.{name}"
        if mode == "Pipe" and not has_one_each:
            yield Finding(
                where=f"{where}.input_mode",
                what="is Pipe, but several ranks of an instance would read one FIFO",
                got=f"{ranks} ranks on each instance",
                allowed="File or FastFile, or a Pipe channel for each rank",
                next_step="if several ranks read this channel, set input_mode to FastFile",
                severity=Severity.WARNING,
                why="a FIFO gives each byte to one reader, so records would be split between the ranks",
                source="developer guide, your-algorithms-training-algo-running-container",
            )
        only_pipe = {
            "compression": channel.compression not in {None, "None"},
            "s3_data_type": channel.s3_data_type == "AugmentedManifestFile",
            "record_wrapping": channel.record_wrapping not in {None, "None"},
        }
        for member in (each for each, is_set in only_pipe.items() if is_set and mode != "Pipe"):
            yield Finding(
                where=f"{where}.{member}",
                what=f"applies to Pipe mode only, but this channel is in {mode} mode",
                got=str(getattr(channel, member)),
                next_step="remove it, or set input_mode to Pipe",
                why="only Pipe mode transforms the data that it streams",
                source=_API,
            )


def _one_larger(facts: JobFacts) -> Iterator[Finding]:
    """Yield a warning if one larger instance of the same family has as many accelerators as the job, or more."""
    instance = facts.instance
    if instance is None or not instance.num_accelerators or facts.instance_count < 2:
        return
    wanted, family = facts.instance_count * instance.num_accelerators, instance.name.split(".")[1]
    larger = [
        each
        for each in catalogue().types.values()
        if each.name.split(".")[1] == family
        and each.accelerator == instance.accelerator
        and each.num_accelerators >= wanted
    ]
    if larger and "heterogeneous" not in facts.flags:
        best = min(larger, key=lambda each: (each.num_accelerators, each.vcpus))
        yield Finding(
            where="instance_count",
            what=f"is {facts.instance_count}, but one {best.name} has at least as many accelerators",
            got=f"{facts.instance_count} x {instance.num_accelerators} {instance.accelerator}",
            next_step=f"choose one {best.name}",
            severity=Severity.WARNING,
            why="gradients within one instance do not cross the network",
            source="developer guide, distributed-training-options; catalogue",
        )


def _whole_model(facts: JobFacts) -> Iterator[Finding]:
    """Yield an error if each rank creates the whole model and the accelerator or the host has too little memory."""
    num_parameters = _num_parameters(facts.hyperparameters)
    if facts.entry_point not in WHOLE_MODEL_SCRIPTS or not facts.instance or not num_parameters:
        return
    peaks = whole_model_peaks(num_parameters, facts.instance, ranks=facts.ranks_per_instance or 1)
    for peak in peaks:
        if not peak.fits:
            yield Finding(
                where="instance_type",
                what=f"cannot hold the model of {facts.entry_point}; {peak}",
                got=f"{facts.instance_type}, {num_parameters:.3g} parameters",
                next_step="use train_fsdp.py, which creates the model layer by layer, or choose a larger type",
                why=f"{facts.entry_point} creates the whole model on each rank, also under ZeRO-3, "
                "before anything is sharded",
                source="trainyard.planning.phases; catalogue",
            )


def _num_parameters(hyperparameters: Mapping[str, Any]) -> int | None:
    """Return a lower bound of the decoder's number of parameters; None if the hyperparameters define no decoder.

    The vocabulary is known to the script only; it counts as one token.
    """
    try:
        num_layers, width = (int(hyperparameters[name]) for name in ("num_layers", "hidden_size"))
    except (KeyError, TypeError, ValueError):
        return None
    if hyperparameters.get("model", "gpt") != "gpt" or min(num_layers, width) < 1:
        return None
    heads = str(hyperparameters.get("num_heads", 1))
    num_heads = int(heads) if heads.isdecimal() and int(heads) and not width % int(heads) else 1
    shape = ModelShape(
        num_layers=num_layers,
        hidden_size=width,
        num_heads=num_heads,
        vocab_size=1,
        sequence_length=1,
        family=TRAINYARD,
        **shape_settings(hyperparameters, num_heads=num_heads),
    )
    return shape.num_parameters


def _name(facts: JobFacts) -> str:
    return "a plain process" if facts.strategy is None else facts.strategy.name


def _shown(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
