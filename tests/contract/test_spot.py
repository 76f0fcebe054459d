"""Managed spot training as far as an account's user can cause it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def test_spot_job_that_is_not_interrupted_is_billed_for_less_than_it_trained(
    endpoint: Endpoint,
) -> None:
    described = endpoint.run(
        endpoint.training_request(
            "sleep 2",
            EnableManagedSpotTraining=True,
            StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
            CheckpointConfig={"S3Uri": endpoint.uri("spot-checkpoints")},
        )
    )
    assert described["TrainingJobStatus"] == "Completed"
    assert described["EnableManagedSpotTraining"] is True
    assert 0 < described["BillableTimeInSeconds"] < described["TrainingTimeInSeconds"]
