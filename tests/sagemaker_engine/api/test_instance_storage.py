"""The engine's sizes of local disks are EC2's, for every type that jobs can have."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from botocore.loaders import Loader

from sagemaker_engine.api.instance_storage import has_local_storage, local_storage_gb


@pytest.fixture(scope="module")
def ec2_sizes() -> dict[str, int | None]:
    """Return SageMaker's type -> GB of its disks by EC2's DescribeInstanceTypes, as moto has it; None for none."""
    spec = find_spec("moto")
    assert spec is not None
    assert spec.origin is not None
    table = Path(spec.origin).parent / "ec2" / "resources" / "instance_types.json.gz"
    described = json.loads(gzip.decompress(table.read_bytes()))
    shapes = Loader().load_service_model("sagemaker", "service-2")["shapes"]
    names = {
        each
        for shape in ("TrainingInstanceType", "ProcessingInstanceType")
        for each in shapes[shape]["enum"]
        if each.removeprefix("ml.") in described
    }
    return {
        name: described[name.removeprefix("ml.")]
        .get("InstanceStorageInfo", {})
        .get("TotalSizeInGB")
        for name in names
    }


def test_every_type_has_the_disks_that_ec2_describes(ec2_sizes: dict[str, int | None]) -> None:
    assert {name: local_storage_gb(name) for name in ec2_sizes} == ec2_sizes


def test_a_type_with_disks_is_one_with_local_storage(ec2_sizes: dict[str, int | None]) -> None:
    assert {name for name in ec2_sizes if has_local_storage(name)} == {
        name for name, size in ec2_sizes.items() if size
    }
