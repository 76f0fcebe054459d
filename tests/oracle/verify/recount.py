"""Expected content of continuity.json, calculated from log and jobs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from verify.lives import Lived, lives
from verify.money import bill, paid, summed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from verify.log import Begun

_MOST_LOSSES = 200


def recount(jobs: Sequence[Mapping[str, Any]], starts: Sequence[Begun]) -> dict[str, Any]:
    """Return the document, without `format`, `version` and `why_unknown`."""
    found = lives(jobs, starts)
    begun = [life.begun for life in found if life.begun]
    owner = painted(begun)
    attempts = [
        _attempt(life, number, found, begun=begun, owner=owner)
        for number, life in enumerate(found, 1)
    ]
    bills = [bill(job) for job in jobs]
    return {
        "is_finished": bool(jobs) and jobs[-1]["status"] == "Completed",
        **_shared(begun, owner),
        "interruptions": sum(
            row["status"] == "Interrupted" for job in jobs for row in job["transitions"]
        ),
        "steps_redone": sum(each["steps_redone"] for each in attempts),
        "samples_rolled_back": sum(each["samples_rolled_back"] for each in attempts),
        **_covered(begun, owner),
        **_times(attempts),
        "billable_seconds": summed(each["billable_seconds"] for each in bills) if jobs else None,
        "saved_seconds": summed(each["saved_seconds"] for each in bills) if jobs else None,
        "billed_usd": summed(each["billed_usd"] for each in bills) if jobs else None,
        "saved_usd": summed(each["saved_usd"] for each in bills) if jobs else None,
        "attempts": attempts,
        "bills": bills,
    }


def painted(begun: Sequence[Begun]) -> NDArray[np.int64]:
    """Return the start that took each step 1, 2, ... of the final weights last; -1 if none did.

    Each start in turn replaces all assignments after the step from which it resumed.
    """
    if not begun:
        return np.empty(0, dtype=np.int64)
    owner = np.full(begun[-1].last_step, -1, dtype=np.int64)
    for number, start in enumerate(begun):
        owner[start.resumed_at :] = number
    return owner


def _shared(begun: Sequence[Begun], owner: NDArray[np.int64]) -> dict[str, Any]:
    if not begun:
        names = ("final_step", "seed", "num_samples", "global_batch_size", "max_steps")
        return {**dict.fromkeys(names), "weights_sha256": None, "epochs": None}
    last = begun[-1]
    num_samples = int(last.start.pairs["num_samples"])
    done = last.of_kind("done")
    return {
        "final_step": len(owner),
        "seed": int(last.start.pairs["seed"]),
        "num_samples": num_samples,
        "global_batch_size": last.batch,
        "max_steps": last.start.whole("max_steps"),
        "weights_sha256": done[-1].pairs.get("weights_sha256") if done else None,
        "epochs": len(owner) * last.batch / num_samples,
    }


def _covered(begun: Sequence[Begun], owner: NDArray[np.int64]) -> dict[str, int]:
    """Return the number of times that step lines cover the steps' samples, step by step."""
    seen = repeated = missed = 0
    without = int((owner == -1).sum())
    for number, start in enumerate(begun):
        claims = [(a // start.batch, -(-b // start.batch)) for _, a, b in start.claims()]
        highest = max([len(owner), *(b for _, b in claims)])
        change = np.zeros(highest + 1, dtype=np.int64)
        for a, b in claims:
            change[a] += 1
            change[b] -= 1
        times = np.cumsum(change)[: len(owner)][owner == number]
        steps = np.flatnonzero(owner == number)
        is_behind = steps >= max((b for _, b in claims), default=0)
        seen += int((times > 0).sum())
        repeated += int(np.maximum(times - 1, 0).sum())
        missed += int(((times == 0) & ~is_behind).sum())
        without += int(((times == 0) & is_behind).sum())
    batch = begun[-1].batch if begun else 0
    return {
        "samples_seen": seen * batch,
        "samples_repeated": repeated * batch,
        "samples_missed": missed * batch,
        "samples_without_line": without * batch,
    }


def _times(attempts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def over(name: str, first: int = 0) -> float:
        return math.fsum(each[name] for each in attempts[first:])

    training, stall = over("training_seconds"), over("stall_seconds")
    lost = (over("lost_work_seconds"), over("waiting_seconds", 1), over("startup_seconds", 1))
    return {
        "lost_work_seconds": lost[0],
        "waiting_seconds": lost[1],
        "startup_seconds": lost[2],
        "lost_seconds": math.fsum(lost),
        "training_seconds": training,
        "num_checkpoints": sum(each["num_checkpoints"] for each in attempts),
        "stall_seconds": stall,
        "longest_stall_seconds": max((e["longest_stall_seconds"] for e in attempts), default=0.0),
        "stall_share": stall / training if training else None,
    }


def _attempt(
    life: Lived,
    number: int,
    found: Sequence[Lived],
    *,
    begun: Sequence[Begun],
    owner: NDArray[np.int64],
) -> dict[str, Any]:
    own, start = None, life.begun
    if start:
        place = next(n for n, each in enumerate(begun) if each is start)
        own = _progress(start, begun[place + 1 :], steps_kept=int((owner == place).sum()))
    lost = 0.0
    if own and start and start is not begun[-1]:
        end = start.last_time if life.end is None else life.end
        lost = max(0.0, end - moment(start, own["kept_until"]))
    return {
        "number": number,
        "job": life.job["name"],
        "job_attempt": life.job_attempt,
        "instance_attempt": life.instance_attempt,
        "ended_by": life.ended_by,
        **{
            name: life.job.get(name)
            for name in ("instance_type", "instance_count", "is_spot", "rung", "rung_reason")
        },
        "began_at": life.begin,
        "ready_at": life.ready,
        "started_at": start.start.time if start else None,
        "ended_at": life.end,
        "waiting_seconds": life.waiting,
        "startup_seconds": life.startup,
        "training_seconds": life.training,
        "lost_work_seconds": lost,
        **paid(life, [each for each in found if each.job is life.job]),
        **(own or _NO_PROGRESS),
    }


_NO_PROGRESS: dict[str, Any] = {
    **dict.fromkeys(("stream", "attempt_id", "world_size", "resumed_at", "first_step")),
    **dict.fromkeys(("last_step_logged", "kept_until")),
    **dict.fromkeys(("steps_kept", "steps_redone", "samples_kept", "samples_rolled_back"), 0),
    **dict.fromkeys(("num_checkpoints", "stall_seconds", "longest_stall_seconds"), 0),
    "redone_losses": [],
}


def _progress(start: Begun, later: Sequence[Begun], *, steps_kept: int) -> dict[str, Any]:
    last = start.last_step
    kept_until = min((each.resumed_at for each in later), default=last)
    redone = sum(step > kept_until for step in range(start.resumed_at + 1, last + 1))
    stalls = [float(each.pairs.get("stall_seconds", 0)) for each in start.of_kind("checkpoint")]
    losses = sorted(
        [int(line.pairs["step"]), float(line.pairs["loss"])]
        for line, _, _ in start.claims()
        if int(line.pairs["step"]) > kept_until
        and math.isfinite(float(line.pairs.get("loss", "nan")))
    )
    return {
        "stream": start.stream,
        "attempt_id": start.start.pairs.get("attempt_id"),
        "world_size": start.start.whole("world_size"),
        "resumed_at": start.resumed_at,
        "first_step": start.resumed_at + 1 if last > start.resumed_at else None,
        "last_step_logged": last,
        "kept_until": kept_until,
        "steps_kept": steps_kept,
        "steps_redone": redone,
        "samples_kept": steps_kept * start.batch,
        "samples_rolled_back": redone * start.batch,
        "num_checkpoints": len(stalls),
        "stall_seconds": math.fsum(stalls),
        "longest_stall_seconds": max(stalls, default=0.0),
        "redone_losses": losses[:: max(1, -(-len(losses) // _MOST_LOSSES))],
    }


def moment(start: Begun, step: int) -> float:
    """Return the time at which a step ended, by linear interpolation between two lines."""
    marks = {start.resumed_at: start.start.time}
    for line in start.of_kind("step", "checkpoint", "alive"):
        at = line.whole("step")
        if at is not None and at > start.resumed_at:
            marks[at] = min(marks.get(at, math.inf), line.time)
    steps = sorted(marks)
    # Relative to the start: a float64 interpolation of epoch seconds would lose milliseconds' tails.
    times = [marks[each] - start.start.time for each in steps]
    return start.start.time + float(np.interp(step, steps, times))
