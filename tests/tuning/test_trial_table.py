"""The table of trials in a task's log."""

from __future__ import annotations

from dataclasses import replace

from trainyard.tuning.trial_table import MOST_ROWS, trial_table
from trainyard.tuning.trials import Trial

DONE = Trial(
    training_job_name="s-001-x",
    status="Completed",
    objective=0.123456789,
    tuned_hyperparameters={"rate": "0.0012345678901", "color": "red"},
    started_at=100.0,
    ended_at=142.4,
)
RUNNING = Trial(
    training_job_name="s-002-x",
    status="InProgress",
    tuned_hyperparameters={"rate": "3", "color": "green"},
    started_at=130.0,
)
PENDING = replace(RUNNING, training_job_name="s-003-x", started_at=None)


def test_best_is_marked_and_running_trials_last_until_now() -> None:
    early = replace(DONE, training_job_name="s-004-x", objective=0.5, is_early_stopped=True)
    told = trial_table([DONE, RUNNING, PENDING, early], maximize=False, now=150.0)

    assert told == (
        "  trial   status       objective seconds color rate\n"
        "* s-001-x Completed    0.123457  42      red   0.00123457\n"
        "  s-002-x InProgress             20      green 3\n"
        "  s-003-x InProgress                     green 3\n"
        "  s-004-x EarlyStopped 0.5       42      red   0.00123457"
    )


def test_large_search_shows_what_changed_and_the_best() -> None:
    trials = [
        replace(DONE, training_job_name=f"s-{n:03d}-x", objective=float(n))
        for n in range(MOST_ROWS + 1)
    ]
    told = trial_table(trials, maximize=True, now=0.0, changed={"s-003-x"})

    assert [line.split()[-6] for line in told.splitlines()[1:]] == ["s-003-x", "s-020-x"]
