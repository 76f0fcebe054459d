"""Section on continuity in a run's report page: one sentence, the key numbers, and one row per attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.runs.continuity import Attempt, Continuity
from trainyard.runs.report.attempt_strip import attempt_strip, strip_legend
from trainyard.runs.report.axes import TIMES
from trainyard.runs.report.views import Tile
from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from markupsafe import Markup

    from trainyard.runs.record import RunRecord

_NONE = "\N{EN DASH}"
_TONES = {"completed": "good", "failed": "bad", "stopped": "bad", "timed_out": "bad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """Row of one attempt in the table; all values are text."""

    number: int
    job: str
    machines: str
    rung: str
    rung_reason: str
    ranks: str
    resumed_at: str
    steps: str
    ended_by: str
    tone: str
    redone: str
    waited: str
    started_up: str
    work_lost: str
    stalls: str
    billed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuityView:
    """Continuity section.

    Attributes:
        why_unknown: reason why the log could not be measured; in that case the sentence and the numbers are empty.
        is_compact: True for a single attempt, for which the table of attempts is empty.
        verify: command that repeats the measurement; empty if the log could not be measured.
    """

    sentence: str
    tone: str
    why_unknown: str
    is_compact: bool
    numbers: tuple[Tile, ...]
    attempts: tuple[AttemptRow, ...]
    strip: Markup
    legend: Markup
    has_rungs: bool
    verify: str


def continuity_of(record: RunRecord) -> Continuity | None:
    """Return the record's continuity; None if it was not measured."""
    return None if record.continuity is None else Continuity.from_dict(record.continuity)


def continuity_view(record: RunRecord) -> ContinuityView | None:
    """Return the section; None if continuity was not measured or there was no attempt."""
    continuity = continuity_of(record)
    if continuity is None or not continuity.attempts:
        return None
    is_known = continuity.why_unknown is None
    is_compact = continuity.is_unbroken
    sentence, tone = _sentence(continuity)
    return ContinuityView(
        sentence=sentence if is_known else "",
        tone=tone,
        why_unknown=continuity.why_unknown or "",
        is_compact=is_compact,
        numbers=tuple(_numbers(continuity)) if is_known else (),
        attempts=() if is_compact else tuple(_row(each) for each in continuity.attempts),
        strip=attempt_strip(continuity),
        legend=strip_legend(continuity),
        has_rungs=_has_ladder(record, continuity),
        verify=f"make verify RUN={record.run_id}" if is_known else "",
    )


def _sentence(found: Continuity) -> tuple[str, str]:
    """Return a sentence on the interruptions and their consequences, and its tone (good, warn, bad)."""
    breaks = _breaks(found)
    redone = f"{found.steps_redone:,} {_plural('step', found.steps_redone)} redone"
    if found.samples_repeated or found.samples_missed:
        wrong = f"{found.samples_repeated:,} samples repeated, {found.samples_missed:,} missed"
        return f"{breaks}; {redone}; {wrong}", "bad"
    if found.samples_without_line:
        rest = f"the log has no line for {found.samples_without_line:,} samples"
        return f"{breaks}; {redone}; no sample repeated; {rest}", "warn"
    return f"{breaks}; {redone}; every sample once", "good"


def _breaks(found: Continuity) -> str:
    others = len(found.attempts) - 1 - found.interruptions
    parts = []
    if found.interruptions or not others:
        number = f"{found.interruptions:,}" if found.interruptions else "No"
        parts.append(f"{number} {_plural('interruption', found.interruptions or 1)}")
    if others > 0:
        parts.append(f"{others} other {_plural('restart', others)}")
    return " and ".join(parts)


def _numbers(found: Continuity) -> list[Tile]:
    once = "bad" if found.samples_repeated or found.samples_missed else "good"
    samples = Tile(
        name="Samples seen once",
        value=f"{found.samples_seen:,}",
        note=f"{found.samples_repeated:,} repeated, {found.samples_missed:,} missed"
        + (f", {found.epochs:.2f} epochs" if found.epochs else ""),
        tone=once,
    )
    kept = [] if found.is_unbroken else [_redone(found), _lost(found)]
    return [samples, *kept, *_stalls(found), *_money(found)]


def _redone(found: Continuity) -> Tile:
    share = f"{found.steps_redone / found.final_step:.1%} of the run" if found.final_step else ""
    rolled = f"{found.samples_rolled_back:,} samples rolled back"
    note = ", ".join(each for each in (share, rolled) if each)
    return Tile(name="Steps redone", value=f"{found.steps_redone:,}", note=note)


def _lost(found: Continuity) -> Tile:
    parts = (
        ("waiting", found.waiting_seconds),
        ("starting up", found.startup_seconds),
        ("work redone", found.lost_work_seconds),
    )
    note = ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in parts)
    return Tile(name="Time lost", value=format_duration(found.lost_seconds), note=note)


def _stalls(found: Continuity) -> list[Tile]:
    if not found.num_checkpoints:
        return []
    share = "" if found.stall_share is None else f" = {found.stall_share:.2%} of training"
    number = f"{found.num_checkpoints:,} {_plural('checkpoint', found.num_checkpoints)}"
    longest = f"longest {found.longest_stall_seconds * 1000:.0f} ms"
    note = f"{number}{share}, {longest}"
    return [Tile(name="Checkpoint stalls", value=_short(found.stall_seconds), note=note)]


def _money(found: Continuity) -> list[Tile]:
    if found.billed_usd is None:
        return []
    note = f"{found.billable_seconds:,} s billed" if found.billable_seconds is not None else ""
    if found.saved_usd:
        fraction = found.saved_usd / (found.saved_usd + found.billed_usd)
        note += f", spot saved {format_usd(found.saved_usd)} ({fraction:.0%})"
    return [Tile(name="Training cost", value=format_usd(found.billed_usd), note=note)]


def _row(attempt: Attempt) -> AttemptRow:
    has_started = attempt.resumed_at is not None
    spot = " (spot)" if attempt.is_spot else ""
    stalls = f"{_short(attempt.stall_seconds)} in {attempt.num_checkpoints}"
    return AttemptRow(
        number=attempt.number,
        job=attempt.job,
        machines=f"{attempt.instance_count} {TIMES} {attempt.instance_type or 'unknown'}{spot}",
        rung="" if attempt.rung is None else str(attempt.rung + 1),
        rung_reason=attempt.rung_reason or "",
        ranks=str(attempt.world_size or _NONE),
        resumed_at=f"{attempt.resumed_at:,}" if has_started else _NONE,
        steps=f"{attempt.first_step:,} to {attempt.last_step_logged:,}"
        if attempt.first_step is not None
        else "none",
        ended_by=attempt.ended_by.replace("_", " "),
        tone=_TONES.get(attempt.ended_by, "warn"),
        redone=f"{attempt.steps_redone:,}" if attempt.steps_redone else _NONE,
        waited=format_duration(attempt.waiting_seconds),
        started_up=format_duration(attempt.startup_seconds),
        work_lost=format_duration(attempt.lost_work_seconds)
        if attempt.lost_work_seconds
        else _NONE,
        stalls=stalls if attempt.num_checkpoints else _NONE,
        billed=format_usd(attempt.billed_usd),
    )


def _has_ladder(record: RunRecord, found: Continuity) -> bool:
    """Return whether the run could use, or used, more than one capacity tier."""
    return len(record.conf.get("capacity_ladder") or ()) > 1 or any(e.rung for e in found.attempts)


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else format_duration(seconds)


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
