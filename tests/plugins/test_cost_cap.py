"""The cap of a run's cost holds over whole lives, and what it stops leaves a model."""

from __future__ import annotations

from tests.plugins.capped_lives import live_a_run, table


def test_thousand_runs_keep_their_cap_and_what_it_stopped_left_a_model() -> None:
    outcomes = [live_a_run(seed) for seed in range(1000)]

    over = [each for each in outcomes if each.billed_usd > each.cap_usd]
    assert not over, table(outcomes)
    stopped = [each for each in outcomes if each.end == "stopped by its cap"]
    assert len(stopped) > 200
    assert all(each.has_model for each in stopped)
    assert {"completed", "refused", "no money"} <= {each.end for each in outcomes}
