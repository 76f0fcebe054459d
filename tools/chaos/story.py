"""Lines of a chaos run's final report: the strikes (faults) with their times and costs, and the jobs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine_faults import fault_id
from chaos.schedule import ATTEMPT_ENDS, INTERRUPTIONS, SERVICES, StrikeKind
from chaos.training_log import cost_of
from trainyard.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chaos.fault_injector import Blow
    from chaos.jobs import ObservedAttempt
    from chaos.training_log import LogMark

ON_TRAINING = (*INTERRUPTIONS, *ATTEMPT_ENDS)


def story(
    blows: Sequence[Blow],
    marks: Sequence[LogMark],
    fired: Mapping[str, Sequence[float]],
    *,
    began_at: float,
    tries: Mapping[str, int],
) -> Iterator[str]:
    """Yield one line per executed strike (a deliberate fault of the chaos run).

    The line has the time since the run's start in minutes and seconds, the strike, and its cost.

    Args:
        blows: the executed strikes.
        marks: the training's progress, see `training_log`.
        fired: times at which the engine executed each of its faults, by the fault's id.
        began_at: the run's start, epoch seconds.
        tries: number of tries by task.
    """
    on_training = sorted(blow.at for blow in blows if blow.strike.kind in ON_TRAINING)
    for blow in blows:
        later = (at for at in on_training if at > blow.at)
        minutes, rest = divmod(round(blow.at - began_at), 60)
        if blow.strike.kind in ON_TRAINING:
            cost = training_cost(blow, marks, until=next(later, float("inf")))
        elif blow.strike.kind in SERVICES:
            num_hit = len(fired.get(fault_id(blow.strike), ()))
            cost = f"{num_hit} request{'s' * (num_hit != 1)} hit, no step lost"
        elif blow.strike.kind is StrikeKind.SLOW_UPLINK:
            cost = "until the end of the run"
        else:
            cost = _process_cost(blow, tries)
        yield f"  {minutes}:{rest:02d}  {blow.strike}: {cost}"


def training_cost(blow: Blow, marks: Sequence[LogMark], *, until: float) -> str:
    """Return, as text, the steps and the time that a strike (`blow`) cost the training.

    `until` is the time of the next strike on the training in epoch seconds, or infinity.
    """
    cost = cost_of(blow.at, marks, until=until)
    if cost is None:
        return "the training did not start again"
    redone = f"{cost.steps_redone or 'no'} step{'s' * (cost.steps_redone > 1)} redone"
    return (
        f"at step {cost.reached}, resumed from step {cost.resumed_at}: {redone}, "
        f"{format_duration(cost.seconds)} lost"
    )


def job_lines(jobs: Sequence[ObservedAttempt]) -> Iterator[str]:
    """Yield one line per job: status, duration, interruptions and billed seconds."""
    for job in jobs:
        took = (
            ""
            if job.ended_at is None
            else f" after {format_duration(job.ended_at - job.created_at)}"
        )
        hit = f", interrupted {times(job.num_interruptions)}" if job.num_interruptions else ""
        paid = f", {job.billable_s} s billed" if job.billable_s else ""
        yield f"  {job.name}: {job.status}{took}{hit}{paid}"


def times(number: int) -> str:
    """Return a count as text: `once`, `3 times`."""
    return "once" if number == 1 else f"{number} times"


def _process_cost(blow: Blow, tries: Mapping[str, int]) -> str:
    if blow.strike.kind is StrikeKind.WORKER:
        task = blow.strike.moment.task
        return f"{task} was tried {times(tries.get(task, 0))}"
    if blow.back_at is None:
        return "it was not started again"
    return f"back after {format_duration(blow.back_at - blow.at)}"
