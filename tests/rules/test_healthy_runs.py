"""The robust profile leaves healthy runs in peace, and a restart changes nothing that a rule says."""

from __future__ import annotations

import pytest

from tests.rules.healthy_run import HealthyRun
from trainyard.rules.configuration import default_rules
from trainyard.rules.evaluation import evaluate

NUM_LOGS, NUM_RICH = 160, 40


@pytest.mark.parametrize("first", range(0, NUM_LOGS, 40))
def test_healthy_logs_raise_nothing(first: int) -> None:
    found = {
        (seed, verdict.name): verdict.issues[0].text
        for seed in range(first, first + 40)
        for verdict in evaluate(
            default_rules(), HealthyRun(seed=seed).records(), HealthyRun(seed=seed).facts
        )
        if verdict.issues or verdict.error
    }

    assert found == {}


@pytest.mark.parametrize("first", range(0, NUM_RICH, 10))
def test_healthy_ranks_raise_nothing(first: int) -> None:
    found = {}
    for seed in range(first, first + 10):
        run = HealthyRun(seed=1000 + seed, num_ranks=2, max_observations=80)
        for verdict in evaluate(default_rules(), run.records(), run.facts):
            if verdict.issues or verdict.error:
                found[seed, verdict.name] = (verdict.issues or [verdict.error])[0]

    assert found == {}
