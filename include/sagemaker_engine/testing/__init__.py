"""Test support: an engine process with its clients, faults over HTTP, and a pytest plugin with both.

    def test_my_job(sagemaker_engine):
        client = sagemaker_engine.client("sagemaker")
        with faults(sagemaker_engine.endpoint_url, {"what": "interrupt", "at": {"step": 20}}):
            client.create_training_job(...)

pytest finds `plugin` if the distribution is installed; if not, use `-p sagemaker_engine.testing.plugin`.
"""

from sagemaker_engine.testing.running_engine import (
    EngineStartError,
    RunningEngine,
    advance_plans,
    end_faults,
    faults,
    times_fired,
)

__all__ = [
    "EngineStartError",
    "RunningEngine",
    "advance_plans",
    "end_faults",
    "faults",
    "times_fired",
]
