"""A processing job spec is read like a training job's."""

from __future__ import annotations

import pytest

from trainyard.errors import SpecError
from trainyard.specs.processing_job import ProcessingInput, ProcessingJobSpec


def test_inputs_and_outputs_are_read() -> None:
    spec = ProcessingJobSpec.from_mapping(
        {
            "role": "Training",
            "instance_type": "ml.m5.large",
            "inputs": [{"source": "s3://b/i", "destination": "/d", "input_name": "data"}],
        }
    )

    assert spec.inputs == (ProcessingInput(source="s3://b/i", destination="/d", input_name="data"),)


def test_unknown_keys_and_missing_ones_are_reported_together() -> None:
    with pytest.raises(SpecError) as caught:
        ProcessingJobSpec.from_mapping({"role": "x", "instance_cuont": 1, "outputs": [{}]})

    message = str(caught.value)
    assert "did you mean 'instance_count'?" in message
    assert "instance_type: is required" in message
    assert "outputs[0].destination: is required" in message


def test_a_volume_key_on_local_storage_is_refused() -> None:
    given = {"role": "x", "instance_type": "ml.g5.xlarge", "volume_kms_key": "alias/ours"}
    with pytest.raises(SpecError, match=r"volume_kms_key: is not supported by .* ml\.g5\.xlarge"):
        ProcessingJobSpec.from_mapping(given)

    assert ProcessingJobSpec.from_mapping({**given, "instance_type": "ml.m5.xlarge"})


def test_a_volume_above_the_types_disks_is_refused() -> None:
    given = {"role": "x", "instance_type": "ml.g5.xlarge", "volume_size": 251}
    with pytest.raises(SpecError, match=r"volume_size: .*local disks.* 251 .*at most 250"):
        ProcessingJobSpec.from_mapping(given)

    assert ProcessingJobSpec.from_mapping({**given, "volume_size": 250})
    assert ProcessingJobSpec.from_mapping({**given, "instance_type": "ml.m5.xlarge"})
