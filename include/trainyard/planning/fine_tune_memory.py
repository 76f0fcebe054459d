"""Memory that a fine-tuning needs after its last step: to merge an adapter or gather shards, and to evaluate.

It follows `training_scripts/fine_tuning`. Only weights are counted, without activations and logits. An instance type
that cannot hold the weights has too little memory in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.catalog.hardware import hardware, has_bf16
from trainyard.catalog.instances import catalogue
from trainyard.errors import Finding
from trainyard.planning.activations import BYTES_FP32
from trainyard.planning.candidates import usable_bytes
from trainyard.planning.phases import host_bytes
from trainyard.planning.quota_needs import EVALUATION
from trainyard.planning.script_plan import script_evaluation
from trainyard.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.catalog.instances import InstanceType
    from trainyard.specs.script_conf import ScriptConf

_BYTES_BF16 = 2


def memory_findings(conf: ScriptConf, num_parameters: float) -> Iterator[Finding]:
    """Yield an error for each instance type that cannot hold the whole model after the last step.

    Args:
        conf: the conf of the script's run.
        num_parameters: parameters of the base model.
    """
    yield from _evaluation_findings(conf, num_parameters)
    for name in dict.fromkeys(each.instance_type for each in conf.rungs):
        yield from _end_findings(conf, num_parameters, catalogue().types[name])


def _evaluation_findings(conf: ScriptConf, num_parameters: float) -> Iterator[Finding]:
    """Yield an error if the evaluation's instance cannot hold the model's weights.

    The weights must fit into the usable memory of all GPUs of the instance together. If the instance has no
    GPUs, they must fit into the usable memory of its host.

    Worked: 13e9 parameters in bf16 are 24.2 GiB. An A10G with 24 GiB has 0.95 x (24 - 2) = 20.9 GiB of usable
    memory (`usable_bytes`), and four A10G have 83.6 GiB of it.
    """
    evaluation = script_evaluation(conf)
    if evaluation is None:
        return
    instance = catalogue().types[evaluation.instance_type]
    needed, usable = _weights(instance, num_parameters), _usable(instance)
    if needed <= usable:
        return
    larger = _cheapest(
        each.instance
        for name, each in hardware().items()
        if each.instance.is_for_processing
        and has_bf16(name)
        and _weights(each.instance, num_parameters) <= _usable(each.instance)
    )
    yield Finding(
        where=EVALUATION,
        what="has too little memory for the evaluation, which loads the whole model",
        got=f"{format_bytes(needed)} of weights on {instance.name}",
        allowed=f"at most {format_bytes(usable)}",
        next_step=f"set it to {larger}" if larger else "remove validation_data",
    )


def _end_findings(
    conf: ScriptConf, num_parameters: float, instance: InstanceType
) -> Iterator[Finding]:
    """Yield an error if rank 0 loads the model at the end of the training, and its host cannot hold it.

    Worked: after a QLoRA training, a model of 20e9 parameters is loaded in bf16, which takes 37.3 GiB. The host of
    ml.g5.2xlarge holds 0.95 x 32 - 4 = 26.4 GiB.
    """
    given = conf.hyperparameters
    has_adapter = given["adapter"] != "none"
    if given["artifact"] == "adapter" or (
        given["strategy"] == "ddp" and given["adapter"] != "qlora"
    ):
        return
    if has_adapter:
        needed, why = _weights(instance, num_parameters), "the base model to merge the adapter"
    else:
        needed, why = 2 * BYTES_FP32 * num_parameters, "the weights of all ranks, and a whole model"
    ranks = conf.ranks_on(instance.name)
    usable = host_bytes(instance, ranks=ranks)
    if needed <= usable:
        return
    larger = _cheapest(
        each
        for each in catalogue().types.values()
        if (each.accelerator, each.num_accelerators)
        == (instance.accelerator, instance.num_accelerators)
        and needed <= host_bytes(each, ranks=ranks)
    )
    steps = [
        *(['set artifact to "adapter"'] if has_adapter else []),
        f"use {larger}" if larger else "use a type with more memory",
    ]
    yield Finding(
        where="instance_type",
        what=f"has too little memory for the end of the training, when rank 0 loads {why}",
        got=f"{format_bytes(needed)} to load on the host of {instance.name}",
        allowed=f"at most {format_bytes(usable)}",
        next_step=", or ".join(steps),
    )


def _weights(instance: InstanceType, num_parameters: float) -> float:
    """Return the bytes of a whole model: in bf16 if the GPUs have it, otherwise in fp32."""
    return num_parameters * (_BYTES_BF16 if has_bf16(instance.name) else BYTES_FP32)


def _usable(instance: InstanceType) -> float:
    """Return the usable memory of an instance in bytes: of all GPUs together, or of the host if there are no GPUs."""
    if not instance.num_accelerators:
        return host_bytes(instance, ranks=1)
    return instance.num_accelerators * usable_bytes(instance)


def _cheapest(types: Iterable[InstanceType]) -> str | None:
    """Return the name of the type with the lowest price, unknown prices last; None without types."""
    known = [(each.price_usd_per_hour, each.name) for each in types if not each.is_retired]
    return min(known, key=lambda each: (each[0] is None, each[0] or 0.0), default=(None, None))[1]
