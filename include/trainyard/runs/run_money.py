"""Costs of a run for its record: total, estimate, savings and cost per unit of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.cost.job_cost import JobCost, cost_per_unit, job_cost, sum_usd
from trainyard.runs.evaluation_metrics import finite_number
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.runs.record import JobRecord


def run_money(
    jobs: Sequence[JobRecord],
    plan: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    conf: Mapping[str, Any],
    ledger: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the `cost` of a run's record (`RunRecord`).

    Args:
        jobs: all attempts of all tasks.
        plan: plan that preflight returned.
        history: metric events of the training.
        conf: conf of the run.
        ledger: the run's ledger, as `Ledger.to_dict` returns it; None if it cannot be read. Jobs that only the ledger
            has are then missing, so the total is not complete.
    """
    costs = [JobCost(**job.cost) for job in jobs]
    paid = ledger or {}
    amounts = _amounts(jobs, paid)
    of_jobs, is_known = sum_usd(amounts)
    is_complete = is_known and ledger is not None and not paid.get("unsettled")
    pools_usd = _warm_pools_usd(jobs, paid)
    total = of_jobs + pools_usd
    saved = [cost.saved_usd for cost in costs if cost.saved_usd is not None]
    on_demand = total + sum(saved)
    return {
        "total_usd": total if is_complete or total else None,
        "is_complete": is_complete,
        "saved_usd": sum(saved) if saved else None,
        "on_demand_usd": on_demand if saved and is_complete else None,
        "saved_fraction": sum(saved) / on_demand if saved and is_complete and on_demand else None,
        "warm_pool_usd": pools_usd or None,
        "once_usd": plan.get("once_usd"),
        **_estimated(plan, total if amounts and is_complete else None),
        "ceiling_usd": plan.get("ceiling_usd"),
        "budget_usd": conf.get("budget_usd"),
        "max_cost_usd": conf.get("max_cost_usd"),
        **_per_unit(_amounts(jobs, paid, task_id=TaskId.TRAIN), history, conf),
        "note": next((cost.note for cost in costs), plan.get("cost_note")),
    }


def _amounts(
    jobs: Sequence[JobRecord], ledger: Mapping[str, Any], *, task_id: str | None = None
) -> list[float | None]:
    """Return the cost of each job in USD, without warm pools; None for a job whose cost is unknown.

    If a task left no result, for example because it was marked failed, its jobs are in the ledger only.

    Args:
        jobs: records of the jobs.
        ledger: the run's ledger; empty without one.
        task_id: task to whose jobs the result is limited; None for all tasks.
    """
    billed = {each["name"]: each for each in ledger.get("entries", ())}
    amounts = [(job.task_id, _usd(job, billed.pop(job.name, {}))) for job in jobs]
    amounts += [(each.get("task_id"), each.get("cost_usd")) for each in billed.values()]
    return [usd for owner, usd in amounts if task_id in {None, owner}]


def _usd(job: JobRecord, entry: Mapping[str, Any]) -> float | None:
    """Return the cost in a job's record; if it is unknown, the cost in the job's ledger entry."""
    usd: float | None = job.cost.get("cost_usd")
    return entry.get("cost_usd") if usd is None else usd


def _warm_pools_usd(jobs: Sequence[JobRecord], ledger: Mapping[str, Any]) -> float:
    """Return the cost of the warm pools in USD.

    A job's billable seconds in the ledger include those of its warm pool; the job's own record does not include
    them. The difference is the seconds of the warm pool.
    """
    entries = ledger.get("entries", ())
    billed_s = {
        each["name"]: each["billable_seconds"] for each in entries if each.get("billable_seconds")
    }
    held = ((job, billed_s[job.name]) for job in jobs if job.name in billed_s)
    return sum(
        job_cost({**job.cost, "billable_seconds": seconds - job.cost["billable_seconds"]}).cost_usd
        or 0.0
        for job, seconds in held
        if job.task_id != TaskId.TUNE and seconds > (job.cost.get("billable_seconds") or seconds)
    )


def _estimated(plan: Mapping[str, Any], total_usd: float | None) -> dict[str, Any]:
    """Return preflight's estimate as `estimate_usd`, and the error of that estimate as `estimate_error`.

    The error is the relative difference of the actual cost from the estimate's expected cost; None if unknown.
    """
    usd = (plan.get("estimate") or {}).get("usd")
    expected = usd["expected"] if usd else None
    return {
        "estimate_usd": usd,
        "estimate_error": total_usd / expected - 1 if total_usd and expected else None,
    }


def _per_unit(
    amounts: Sequence[float | None], history: Sequence[Mapping[str, Any]], conf: Mapping[str, Any]
) -> dict[str, Any]:
    """Return those members of `RunRecord.cost` that concern tokens, epochs and loss points. Keys are their names.

    `amounts` has the cost of each attempt of the training; an unknown cost is None.
    """
    known, is_complete = sum_usd(amounts)
    training = known if amounts and is_complete else None
    tokens = _tokens_trained(history, conf)
    per_token = cost_per_unit(training, tokens)
    return {
        "tokens_trained": tokens,
        "usd_per_million_tokens": None if per_token is None else per_token * 1e6,
        "usd_per_epoch": cost_per_unit(training, _epochs_trained(history, conf)),
        "usd_per_loss_point": cost_per_unit(training, _loss_gained(history)),
    }


def _steps_trained(history: Sequence[Mapping[str, Any]]) -> int:
    steps = (finite_number(event.get("step")) for event in history)
    return int(max((step for step in steps if step is not None), default=0))


def _tokens_trained(history: Sequence[Mapping[str, Any]], conf: Mapping[str, Any]) -> int | None:
    steps = _steps_trained(history)
    batch, length = conf.get("global_batch_size"), conf.get("sequence_length")
    if not steps or not batch or not length or conf.get("model", "gpt") != "gpt":
        return None
    return int(steps * batch * length)


def _epochs_trained(history: Sequence[Mapping[str, Any]], conf: Mapping[str, Any]) -> float | None:
    """Return the number of epochs trained; None if the script did not log the number of samples.

    Worked example: 400 steps of 16 samples each, with 3,200 samples in the data set, are 2 epochs.
    """
    starts = [event for event in history if event.get("event") == "start"]
    if not starts:
        return None
    samples = finite_number(starts[-1].get("num_samples"))
    batch = finite_number(starts[-1].get("global_batch_size") or conf.get("global_batch_size"))
    return _steps_trained(history) * batch / samples if samples and batch else None


def _loss_gained(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the decrease of the validation loss from its first value to its lowest; None if it did not decrease."""
    losses = [
        loss
        for event in history
        if event.get("event") == "eval"
        and (loss := finite_number(event.get("validation_loss"))) is not None
    ]
    gained = losses[0] - min(losses) if losses else 0.0
    return gained if gained > 0 else None
