"""Test support: an engine process with its clients, faults over HTTP, and a pytest plugin for the engine.

    def test_my_job(sagemaker_engine):
        client = sagemaker_engine.client("sagemaker")
        with faults(sagemaker_engine.endpoint_url, {"what": "interrupt", "at": {"step": 20}}):
            client.create_training_job(...)

If the distribution is installed, pytest finds the module `plugin`, which provides the fixture
`sagemaker_engine`. If not, use `-p sagemaker_engine.testing.plugin`.
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
