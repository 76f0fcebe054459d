"""What instances use is told of their own processes only, in the service's units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.host_metrics import (
    folder_bytes,
    gpu_metrics,
    volume_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_gpus_are_added_up() -> None:
    assert gpu_metrics("90, 12000, 24000\n50, 6000, 24000\n") == pytest.approx(
        {"GPUUtilization": 140.0, "GPUMemoryUtilization": 75.0}
    )
    assert gpu_metrics("") == {}


def test_a_folder_counts_what_lies_below_it(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"x" * 100_000)

    assert 100_000 <= folder_bytes(tmp_path) <= 120_000


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        ({"ResourceConfig": {"VolumeSizeInGB": 30}}, 30),
        ({"ProcessingResources": {"ClusterConfig": {"VolumeSizeInGB": 5}}}, 5),
        ({"ResourceConfig": {}}, 1),
    ],
    ids=["training", "processing", "not-said"],
)
def test_the_volume_is_that_of_the_request(request_: dict[str, object], size: int) -> None:
    assert volume_bytes(request_) == size * 2**30
