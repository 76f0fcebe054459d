"""Planner's choices for the fields of a conf that are "auto": strategy, instance type and count, with reasons.

The planner replaces the strategy "auto", the instance type "auto" and the instance count 0. It also sets ranks per
instance, micro batch size, precision, compilation and, for the sharded script, the degrees of parallelism and
activation checkpointing, because the chosen plan depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, PlanError, SpecError
from trainyard.planning.activations import Recompute
from trainyard.planning.evaluation_plan import BYTE_VOCABULARY
from trainyard.planning.plan_request import PlanRequest
from trainyard.planning.plans import make_plans
from trainyard.planning.shapes import TRAINYARD, shape_settings
from trainyard.specs.arithmetic import AUTO, settled_compile, settled_precision
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_rules import OF_SHARDS
from trainyard.units import format_bytes, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.planning.candidates import PlanCandidate
    from trainyard.planning.plans import Plan, Plans

REPLICAS, SHARDS = "ddp", "fsdp"
_ASSUMED_VOCABULARY = 50_304
_STAND_INS: dict[str, Any] = {
    "instance_type": "ml.m5.large",
    "instance_count": 1,
    "processes_per_instance": 1,
    "micro_batch_size": 1,
}
"""Placeholders for "auto" while the rest of a conf is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoChoice:
    """The planner's values for the fields of a conf that are "auto", and for the rest of the layout.

    Attributes:
        chosen: value per conf field; it replaces the conf's value.
        reasons: sentences that explain the choice.
        plan: the winning plan, as `Plan.to_dict`.
        num_plans: number of clusters with a plan.
        num_rejected: number of clusters without one.
    """

    chosen: Mapping[str, Any]
    reasons: tuple[str, ...]
    plan: Mapping[str, Any]
    num_plans: int
    num_rejected: int

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as JSON-safe data."""
        return {
            "chosen": dict(self.chosen),
            "reasons": list(self.reasons),
            "plan": dict(self.plan),
            "num_plans": self.num_plans,
            "num_rejected": self.num_rejected,
        }


def open_fields(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that the params leave to the planner."""
    asked = {
        "strategy": params.get("strategy") == AUTO,
        "instance_type": params.get("instance_type") == AUTO,
        "instance_count": str(params.get("instance_count")) == "0",
    }
    return tuple(name for name, is_open in asked.items() if is_open)


def choose_auto(params: Mapping[str, Any]) -> AutoChoice | None:
    """Return the planner's choices for the params that are "auto"; None if there are none.

    Raises:
        SpecError: the rest of the conf is invalid, or cannot be planned.
        PlanError: no cluster can run the training; the findings have the reason per cluster.
    """
    left_open = open_fields(params)
    if not left_open:
        return None
    wanted = params.get("strategy", REPLICAS)
    conf = RunConf.from_mapping({**params, **_stand_ins(params, wanted)})
    if findings := [*_unplannable(conf, params)]:
        raise SpecError(findings, subject="auto")
    plans = _plans(_request(conf, params, left_open), wanted)
    best = plans.plans[0]
    return AutoChoice(
        chosen=_chosen(best.candidate, conf, left_open, wanted=wanted),
        reasons=tuple(_reasons(best, conf, left_open)),
        plan=best.to_dict(),
        num_plans=len(plans.plans),
        num_rejected=len(plans.rejected),
    )


def _stand_ins(params: Mapping[str, Any], wanted: object) -> dict[str, Any]:
    """Return placeholders for the fields that the planner chooses, so that the rest of a conf can be checked.

    `wanted` is the conf's strategy. If it is not ddp, the result has two more fields:

    - the strategy, which is fsdp if the conf has "auto"
    - the conf's hyperparameters, except the ones that only the sharded script has
    """
    if wanted == REPLICAS:
        return _STAND_INS
    rest = given = params.get("hyperparameters") or {}
    if isinstance(given, Mapping):
        rest = {name: value for name, value in given.items() if name not in OF_SHARDS}
    return {**_STAND_INS, "strategy": SHARDS if wanted == AUTO else wanted, "hyperparameters": rest}


def _plans(request: PlanRequest, wanted: object) -> Plans:
    """Return the plans that the script of the wanted strategy supports.

    Raises:
        PlanError: there is no such plan; the findings have the reason per cluster.
    """
    if wanted == SHARDS:
        return make_plans(request, allowed=_is_sharded, since="the conf requests strategy fsdp")
    if wanted != REPLICAS:
        return make_plans(request)
    try:
        return make_plans(request, allowed=_is_copies, since="the conf requests strategy ddp")
    except PlanError as error:
        raise PlanError([_NO_COPIES, *error.findings], subject="auto") from error


_NO_COPIES = Finding(
    where="strategy",
    what="is ddp, but no cluster can train the model without sharding or activation recomputation",
    next_step='set strategy to "auto", which also tries both; the other findings have the reason for each cluster',
)


def _unplannable(conf: RunConf, params: Mapping[str, Any]) -> Iterator[Finding]:
    where = open_fields(params)[0]
    if conf.model != "gpt":
        yield Finding(
            where=where,
            what="is left to the planner, which supports decoder models only",
            got=f"model {conf.model}",
            allowed="model gpt",
            next_step='set strategy, instance_type and instance_count instead of "auto"',
        )
    if conf.capacity_ladder:
        yield Finding(
            where=where,
            what="is left to the planner, but capacity_ladder already names instances",
            next_step='remove capacity_ladder, or set strategy, instance_type and instance_count instead of "auto"',
        )
    if shape_settings(conf.hyperparameters, num_heads=conf.num_heads)["has_tied_tables"]:
        yield Finding(
            where="hyperparameters.tied_embeddings",
            what="is set, but the planner may choose pipeline stages, which need separate tables for input and output",
            next_step='set strategy, instance_type and instance_count instead of "auto"',
        )
    # The planner does not model context parallelism, offloading to the host, or pipeline schedules other than 1F1B.
    for name in OF_SHARDS:
        if name in (params.get("hyperparameters") or {}):
            yield Finding(
                where=f"hyperparameters.{name}",
                what="is set, but the planner chooses it",
                next_step='remove it, or set strategy, instance_type and instance_count instead of "auto"',
            )


def _request(conf: RunConf, params: Mapping[str, Any], left_open: tuple[str, ...]) -> PlanRequest:
    fixed_type = "instance_type" not in left_open
    count = params.get("instance_count", RunConf().instance_count)
    types = [params.get("instance_type", RunConf().instance_type)] if fixed_type else []
    settings = shape_settings(conf.hyperparameters, num_heads=conf.num_heads)
    return PlanRequest.from_mapping(
        {
            "num_layers": conf.num_layers,
            "hidden_size": conf.hidden_size,
            "num_heads": conf.num_heads,
            **{n: v for n, v in settings.items() if n != "has_tied_tables"},
            "family": TRAINYARD,
            "vocab_size": _vocabulary(conf),
            "sequence_length": conf.sequence_length,
            "global_batch_size": conf.global_batch_size,
            "tokens": conf.max_steps * conf.global_batch_size * conf.sequence_length,
            "precision": settled_precision(conf.precision, types),
            "compile": settled_compile(conf.hyperparameters.get("compile"), types),
            "deadline_h": conf.deadline_h,
            "budget_usd": conf.budget_usd,
            "instance_types": types,
            "instance_count": None if "instance_count" in left_open else int(str(count)),
        }
    )


def _vocabulary(conf: RunConf) -> int:
    usual = BYTE_VOCABULARY if conf.tokenizer == "bytes" else _ASSUMED_VOCABULARY
    return conf.vocab_size or usual


def _is_copies(candidate: PlanCandidate) -> bool:
    """Return whether train_ddp.py supports the candidate: whole replicas without recomputation."""
    mesh = candidate.mesh
    is_whole = mesh.dp_shard == mesh.tp == mesh.pp == 1
    return is_whole and candidate.batching.recompute is Recompute.NONE


def _is_sharded(candidate: PlanCandidate) -> bool:
    """Return whether strategy fsdp allows a candidate: its model is split over the ranks, or it has one rank."""
    mesh = candidate.mesh
    return mesh.num_ranks == 1 or max(mesh.dp_shard, mesh.tp, mesh.pp) > 1


def _chosen(
    best: PlanCandidate, conf: RunConf, left_open: tuple[str, ...], *, wanted: object
) -> dict[str, Any]:
    mesh, cluster = best.mesh, best.cluster
    is_copies = _is_copies(best) and wanted != SHARDS
    degrees = {
        "hybrid_shard_degree": mesh.dp_shard,
        "tensor_parallel_degree": mesh.tp,
        "pipeline_parallel_degree": mesh.pp,
        "activation_checkpointing": best.batching.recompute.value,
    }
    chosen: dict[str, Any] = {
        "strategy": REPLICAS if is_copies else SHARDS,
        "instance_type": cluster.hardware.instance.name,
        "instance_count": cluster.instance_count,
        "processes_per_instance": cluster.ranks_per_instance,
        "micro_batch_size": best.batching.micro_batch_size,
        "precision": best.batching.precision,
    }
    kept = {n: v for n, v in chosen.items() if n in left_open or n not in _ASKED}
    hyperparameters = {
        "num_workers": NUM_WORKERS,
        **conf.hyperparameters,
        "compile": best.batching.is_compiled,
        **({} if is_copies else degrees),
    }
    return {**kept, "hyperparameters": hyperparameters}


NUM_WORKERS = 2
"""Loader processes per rank if the conf does not set them. The published speeds were measured with this number."""
_ASKED = ("strategy", "instance_type", "instance_count")


def _reasons(best: Plan, conf: RunConf, left_open: tuple[str, ...]) -> Iterator[str]:
    each = best.candidate
    yield f"left to the planner: {', '.join(left_open)}"
    yield f"{each.name}, {each.mesh.strategy} ({each.mesh}): {best.reason}"
    yield (
        f"each rank needs {format_bytes(each.memory.total)} of {format_bytes(each.usable_bytes)}; "
        f"micro batch {each.batching.micro_batch_size} x {each.batching.num_micro_batches}, "
        f"recomputation {each.batching.recompute.value}"
    )
    yield (
        f"modeled: {each.step.total:.3g} s per step, {format_duration(3600 * each.hours)} and "
        f"{format_usd(each.cost_usd)} in total, on demand"
    )
    yield f"{each.batching.precision}, {'compiled' if each.batching.is_compiled else 'eager'}"
    if conf.tokenizer != "bytes":
        yield f"the vocabulary is assumed to be {_ASSUMED_VOCABULARY:,}: the tokenizer was not read"
    if 3600 * each.hours > conf.max_run_s:
        yield (
            f"max_run_s {conf.max_run_s} is shorter: the training would be stopped, and resume with another attempt"
        )
