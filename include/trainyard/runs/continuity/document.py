"""continuity.json: steps, redone steps, waiting times and cost of the attempts of a training run.

The surviving lineage is the steps of each attempt that no later attempt repeated. Step s uses the positions
[(s - 1) * B, s * B) of the sample order, and B is the global batch size. Each epoch has each sample once,
so a position that is covered once is a sample that was seen once in its epoch.

A start is a start of the training processes; an attempt has at most one. A step line is a line of the
training's log that reports a step. It covers all positions that were used since the previous step line.

    {"format": "trainyard-continuity", "version": 1,
     "why_unknown": null,              reason if the log had nothing to measure; the values from the log
                                       are then null or 0
     "is_finished": true,              the last job completed
     "final_step": 400,                the last step of the surviving lineage
     "seed": 1, "num_samples": 9411, "global_batch_size": 16, "max_steps": 400,
     "weights_sha256": "ab...",        logged by the last attempt at its end
     "interruptions": 2,               interruptions of the jobs by the service
     "steps_redone": 17, "samples_rolled_back": 272,
     "samples_seen": 6400,             positions of the surviving lineage that step lines cover
     "samples_repeated": 0,            how many times step lines cover one of these positions again
     "samples_missed": 0,              positions that no step line covers, although the same start has a
                                       later step line
     "samples_without_line": 0,        positions after the last step line of a start, and positions before
                                       the step from which the first start resumed. They do not count as
                                       missed: the checkpoint from which a start resumed shows that all
                                       positions before it were used.
     "epochs": 0.68,
     "lost_work_seconds": 12.0,        from the last surviving step to the end of the attempt, summed
     "waiting_seconds": 30.0,          until instances were available, all attempts but the first
     "startup_seconds": 20.0,          from available instances to the start of the training processes, all
                                       attempts but the first
     "lost_seconds": 62.0,             sum of the three values above
     "training_seconds": 190.0,        from the start of the processes to the end of training, all attempts
     "num_checkpoints": 8, "stall_seconds": 0.4, "longest_stall_seconds": 0.08, "stall_share": 0.002,
     "billable_seconds": 89, "saved_seconds": 129, "billed_usd": 0.0057, "saved_usd": 0.0082,
     "attempts": [Attempt ...], "bills": [Bill ...]}

Times are epoch seconds. Durations are seconds, rounded to milliseconds; stalls are rounded to microseconds.
An amount of money is null if a price or the billed seconds are unknown.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "trainyard-continuity"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of the training processes, or one lifetime of instances on which no training process started.

    Attributes:
        number: number of the attempt in the run; the first is 1.
        job_attempt: number of the job within the task; the first is 1.
        instance_attempt: number of the instances' lifetime within the job; the first is 1.
        ended_by: completed, interrupted, restarted, failed, stopped, timed_out or running.
        stream: log stream of the processes; None without a start.
        attempt_id: random id that the processes logged.
        rung: number of the capacity tier that the job used; the first is 0.
        rung_reason: why the job used this tier.
        resumed_at: number of steps that were complete at the start; None without a start.
        first_step: the first step of the attempt; None if no step was logged.
        last_step_logged: the last step in the log; the actual last step may be later.
        kept_until: the last step that no later start undid. It is the smallest step from which a later start
            resumed. For the last start, it is the start's last step.
        steps_redone: number of the attempt's steps after `kept_until`, up to the last logged step.
        began_at: end of the previous attempt, or creation of the job.
        ready_at: time when instances were available.
        started_at: time of the processes' `start` line.
        ended_at: end of the instances.
        waiting_seconds: from began_at to ready_at.
        startup_seconds: from ready_at to started_at.
        training_seconds: from started_at to the end of training.
        lost_work_seconds: from the step `kept_until` to ended_at; 0 for the last start.
        billed_seconds: share of the job's billable seconds, by time on instances.
        redone_losses: pairs [step, loss] of at most 200 steps that did not survive, for the report's chart.
    """

    number: int
    job: str
    job_attempt: int
    instance_attempt: int
    ended_by: str
    stream: str | None = None
    attempt_id: str | None = None
    instance_type: str | None = None
    instance_count: int = 1
    is_spot: bool = False
    rung: int | None = None
    rung_reason: str | None = None
    world_size: int | None = None
    resumed_at: int | None = None
    first_step: int | None = None
    last_step_logged: int | None = None
    kept_until: int | None = None
    steps_kept: int = 0
    steps_redone: int = 0
    samples_kept: int = 0
    samples_rolled_back: int = 0
    began_at: float | None = None
    ready_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    waiting_seconds: float = 0.0
    startup_seconds: float = 0.0
    training_seconds: float = 0.0
    lost_work_seconds: float = 0.0
    num_checkpoints: int = 0
    stall_seconds: float = 0.0
    longest_stall_seconds: float = 0.0
    billed_seconds: float | None = None
    billed_usd: float | None = None
    saved_usd: float | None = None
    redone_losses: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Bill of one job, and the saving of spot compared with on-demand capacity.

    Seconds and `price_usd_per_hour` are per instance; `billed_usd` and `saved_usd` are for all instances.
    """

    job: str
    instance_type: str | None
    instance_count: int
    price_usd_per_hour: float | None
    training_seconds: int | None
    billable_seconds: int | None
    saved_seconds: int | None
    billed_usd: float | None
    saved_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuity:
    """Content of continuity.json; the module's docstring describes each field."""

    why_unknown: str | None = None
    is_finished: bool = False
    final_step: int | None = None
    seed: int | None = None
    num_samples: int | None = None
    global_batch_size: int | None = None
    max_steps: int | None = None
    weights_sha256: str | None = None
    interruptions: int = 0
    steps_redone: int = 0
    samples_rolled_back: int = 0
    samples_seen: int = 0
    samples_repeated: int = 0
    samples_missed: int = 0
    samples_without_line: int = 0
    epochs: float | None = None
    lost_work_seconds: float = 0.0
    waiting_seconds: float = 0.0
    startup_seconds: float = 0.0
    lost_seconds: float = 0.0
    training_seconds: float = 0.0
    num_checkpoints: int = 0
    stall_seconds: float = 0.0
    longest_stall_seconds: float = 0.0
    stall_share: float | None = None
    billable_seconds: int | None = None
    saved_seconds: int | None = None
    billed_usd: float | None = None
    saved_usd: float | None = None
    attempts: tuple[Attempt, ...] = ()
    bills: tuple[Bill, ...] = ()

    @property
    def is_unbroken(self) -> bool:
        """True if there was a single attempt."""
        return len(self.attempts) == 1

    def to_dict(self) -> dict[str, Any]:
        """Return the document as JSON-safe data, with lists instead of tuples."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return {"format": FORMAT, "version": VERSION, **data}

    def to_json(self) -> str:
        """Return the document as indented JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the continuity that data of `to_dict` describes.

        Raises:
            ContractError: the data is not a continuity document of this version.
        """
        try:
            return cls(**_members(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ContractError(
                "the data is not a continuity document",
                got=f"{type(error).__name__}: {error}",
                allowed=f"format {FORMAT}, version {VERSION}",
                next_step="read it with the release of Trainyard that wrote it",
            ) from error


def _members(data: Mapping[str, Any]) -> dict[str, Any]:
    members = dict(data)
    kind, version = members.pop("format"), members.pop("version")
    if (kind, version) != (FORMAT, VERSION):
        raise ValueError(f"format {kind!r}, version {version!r}")
    return {
        **members,
        "attempts": tuple(_attempt(each) for each in members["attempts"]),
        "bills": tuple(Bill(**each) for each in members["bills"]),
    }


def _attempt(data: Mapping[str, Any]) -> Attempt:
    losses = tuple((int(step), float(loss)) for step, loss in data["redone_losses"])
    return Attempt(**{**data, "redone_losses": losses})
