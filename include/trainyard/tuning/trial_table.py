"""A search's trials as a table of plain text, for a task's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.tuning.trials import best_trial

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trainyard.tuning.trials import Trial

MOST_ROWS = 20
_BEST = "*"


def trial_table(
    trials: Sequence[Trial], *, maximize: bool, now: float, changed: Collection[str] = ()
) -> str:
    """Return one line per trial: name, status, objective, seconds, tuned values; `*` marks the best.

    With more than 20 trials, only those in `changed` and the best are shown.

    Args:
        trials: trials in the order of their numbers.
        maximize: whether a higher objective is better.
        now: current time in epoch seconds, for the seconds of running trials.
        changed: names of the trials that have changed.
    """
    best = best_trial(trials, maximize=maximize)
    shown = [
        each
        for each in trials
        if len(trials) <= MOST_ROWS or each is best or each.training_job_name in changed
    ]
    names = sorted({name for each in trials for name in each.tuned_hyperparameters})
    head = ["", "trial", "status", "objective", "seconds", *names]
    rows = [_row(each, names, is_best=each is best, now=now) for each in shown]
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    return "\n".join(
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    )


def _row(trial: Trial, names: Sequence[str], *, is_best: bool, now: float) -> list[str]:
    status = "EarlyStopped" if trial.is_early_stopped else trial.status
    seconds = (
        ""
        if trial.started_at is None
        else f"{max(0.0, (trial.ended_at or now) - trial.started_at):.0f}"
    )
    values = (trial.tuned_hyperparameters.get(name, "") for name in names)
    return [
        _BEST if is_best else "",
        trial.training_job_name,
        status,
        "" if trial.objective is None else f"{trial.objective:.6g}",
        seconds,
        *(_short(value) for value in values),
    ]


def _short(value: str) -> str:
    """Return a value for the table: numbers with six digits, and at most 24 characters of text."""
    try:
        number = float(value)
    except ValueError:
        return value[:24]
    return value if len(value) <= 8 else f"{number:.6g}"
