"""continuity.json: what the attempts of a training run did, redid, waited for and cost.

    {"format": "trainyard-continuity", "version": 1,
     "why_unknown": null,              a sentence when there was nothing to read; then the rest is empty
     "is_finished": true,              the last attempt completed
     "final_step": 400,                the last step of the surviving lineage
     "seed": 1, "num_samples": 9411, "global_batch_size": 16, "max_steps": 400,
     "weights_sha256": "ab...",        as the last attempt printed it at its end
     "interruptions": 2,               times the service took instances away
     "steps_redone": 17, "samples_rolled_back": 272,
     "samples_seen": 6400,             positions of the lineage that step lines cover
     "samples_repeated": 0,            of those, covered more than once
     "samples_missed": 0,              positions that a start's own step lines leave out
     "samples_without_line": 0,        positions after the last (or before the first) step line of a start,
                                       taken according to the checkpoint from which the next one resumed
     "epochs": 0.68,
     "lost_work_seconds": 12.0,        from the last surviving step to the end of the attempt, summed
     "waiting_seconds": 30.0,          until there were instances, attempts after the first
     "startup_seconds": 20.0,          from there until the training processes began, likewise
     "lost_seconds": 62.0,             the three together
     "training_seconds": 190.0,        from the processes' begin to the end of training, all attempts
     "num_checkpoints": 8, "stall_seconds": 0.4, "longest_stall_seconds": 0.08, "stall_share": 0.002,
     "billable_seconds": 89, "saved_seconds": 129, "billed_usd": 0.0057, "saved_usd": 0.0082,
     "attempts": [Attempt ...], "bills": [Bill ...]}

Times are epoch seconds, durations seconds, rounded to milliseconds, stalls to microseconds. An amount of money is null
when a price or the billed seconds are not known. Step s has taken the positions [(s - 1) * B, s * B) of the sample
order, B being the global batch size; each epoch holds each sample once, so a position that is covered once is a sample
seen once.
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
    """One start of the training processes, or instances that vanished before any started.

    Attributes:
        number: 1, 2, ... over the whole run.
        job_attempt: which job of the task; instance_attempt: which instances of that job.
        stream: the log stream it wrote; None without a line.
        rung: of the capacity ladder, from 0; rung_reason: why this one.
        attempt_id: random name that the processes gave themselves.
        resumed_at: steps that were done when it started; None when it never did.
        first_step: the first step it took; None when it took none that was logged.
        last_step_logged: the last step a line speaks of; the real one may be a little later.
        kept_until: the last of its steps that survived: where the earliest later start resumed.
        steps_redone: logged steps beyond, taken again by a later attempt.
        ended_by: completed, interrupted, restarted, failed, stopped, timed_out or running.
        began_at: when the attempt before had ended; ready_at: when it had instances; started_at:
            when its processes said they began; ended_at: when its instances were gone.
        waiting_seconds: began to ready; startup_seconds: ready to started; training_seconds:
            started to the end of training; lost_work_seconds: the last surviving step to ended.
        billed_seconds: its share of the job's billable seconds, by time on instances.
        redone_losses: [step, loss] of the steps that did not survive, for the report's plot.
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
    """Bill of one job, for each of its instances, and the saving of spot against on-demand."""

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
    """The content of continuity.json; the module's text says what each field means."""

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
        """True if one attempt did it all."""
        return len(self.attempts) == 1

    @property
    def has_every_sample_once(self) -> bool:
        """True if the lines show each position of the lineage once; none may be without a line."""
        return not (self.samples_repeated or self.samples_missed or self.samples_without_line)

    def to_dict(self) -> dict[str, Any]:
        """Return the document as JSON-safe data, lists for tuples."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return {"format": FORMAT, "version": VERSION, **data}

    def to_json(self) -> str:
        """Return the document as indented JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_dict` wrote.

        Raises:
            ContractError: the data is no continuity document of this version.
        """
        try:
            return cls(**_members(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ContractError(
                "this is no continuity document",
                got=f"{type(error).__name__}: {error}",
                allowed=f"format {FORMAT}, version {VERSION}",
            ) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return what `to_json` wrote.

        Raises:
            ContractError: the text is no continuity document of this version.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ContractError("continuity.json is not JSON", got=str(error)) from error
        return cls.from_dict(data)


def _members(data: Mapping[str, Any]) -> dict[str, Any]:
    members = dict(data)
    kind, version = members.pop("format"), members.pop("version")
    if (kind, version) != (FORMAT, VERSION):
        raise ValueError(f"format {kind} version {version}")
    return {
        **members,
        "attempts": tuple(_attempt(each) for each in members["attempts"]),
        "bills": tuple(Bill(**each) for each in members["bills"]),
    }


def _attempt(data: Mapping[str, Any]) -> Attempt:
    losses = tuple((int(step), float(loss)) for step, loss in data["redone_losses"])
    return Attempt(**{**data, "redone_losses": losses})
