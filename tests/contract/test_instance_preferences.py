"""A job with a list of instance types runs on one of them, and its description has which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def test_job_has_the_chosen_instances_of_its_preferences(endpoint: Endpoint) -> None:
    preferences = [
        {"InstanceType": "ml.m5.large", "InstanceCount": 2},
        {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
    ]
    request = endpoint.training_request(
        ResourceConfig={"InstancePreferences": preferences, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxPendingTimeInSeconds": 7200},
    )

    described = endpoint.run(request)

    resources = described["ResourceConfig"]
    chosen = {
        "InstanceType": resources["SelectedInstanceType"],
        "InstanceCount": resources["SelectedInstanceCount"],
    }
    assert described["TrainingJobStatus"] == "Completed"
    assert chosen in preferences
    assert resources["InstancePreferences"] == preferences
    assert described["StoppingCondition"]["MaxPendingTimeInSeconds"] == 7200
