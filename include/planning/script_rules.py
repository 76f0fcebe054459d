"""What Trainyard's own training scripts would refuse, told before a job is paid: names and degrees.

A script of the user's own is not judged. What it says of its hyperparameters is in training_scripts/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from include.errors import Finding, unknown_key
from include.specs.run_conf_rules import FURTHER_HYPERPARAMETERS, OF_SHARDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SMP = "mp_parameters"
_SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "train_ddp.py": (),
    "train_fsdp.py": (*OF_SHARDS, _SMP),
}


def script_findings(
    entry_point: str, own: Mapping[str, Any], shared: Mapping[str, Any], *, ranks: int, where: str
) -> Iterator[Finding]:
    """Yield what one of our scripts would refuse of a job's hyperparameters; nothing for any other script.

    Args:
        entry_point: the script.
        own: the hyperparameters to judge.
        shared: those that the job has beside them, and that they may replace.
        ranks: of the job.
        where: of the hyperparameters in the user's input.
    """
    further = _SCRIPTS.get(entry_point)
    if further is None:
        return
    known = (*FURTHER_HYPERPARAMETERS, *further, *shared)
    for name in own:
        if name not in known:
            yield unknown_key(where, name, known)
    if further:
        for name, what in _degree_faults({**shared, **own}, ranks=ranks):
            yield Finding(
                where=f"{where}.{name}", what=what, got=f"{own.get(name, 1)} on {ranks} ranks"
            )


def _degree_faults(values: Mapping[str, Any], *, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield each degree that does not divide what it has to."""
    try:
        hybrid, tensor, context, pipeline = (
            int(values.get(name, default))
            for name, default in zip(OF_SHARDS[:4], (0, 1, 1, 1), strict=True)
        )
        heads = int(values["num_heads"])
    except (TypeError, ValueError):
        yield OF_SHARDS[0], "and the other degrees must be whole numbers"
        return
    if min(hybrid, tensor - 1, context - 1, pipeline - 1) < 0:
        yield OF_SHARDS[0], "must be 0 or more, the other degrees 1 or more"
        return
    sharing, rest = divmod(ranks, tensor * pipeline)
    shard = hybrid or sharing
    if rest or not sharing:
        yield (
            OF_SHARDS[1],
            f"times pipeline_parallel_degree is {tensor * pipeline}: no part of the ranks",
        )
    elif sharing % shard:
        yield OF_SHARDS[0], f"does not divide the {sharing} ranks that share a model"
    elif shard % context:
        yield OF_SHARDS[2], f"does not divide the {shard} ranks that share a shard"
    if heads % tensor:
        yield OF_SHARDS[1], f"does not divide num_heads {heads}"
