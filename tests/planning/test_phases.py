"""The planner offers only what the scripts can start, save and finish."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from trainyard.catalog.hardware import hardware
from trainyard.errors import PlanError
from trainyard.planning import phases
from trainyard.planning.candidates import usable_bytes
from trainyard.planning.compute import Cluster
from trainyard.planning.mesh import Mesh
from trainyard.planning.phases import Peak, PlanPhase, phase_peaks
from trainyard.planning.plan_request import PlanRequest
from trainyard.planning.plans import make_plans
from trainyard.planning.shapes import PUBLISHED
from trainyard.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

SHAPE = PUBLISHED["llama3-70b"]
P = SHAPE.num_parameters
ON = Cluster(hardware=hardware()["ml.p5.48xlarge"], instance_count=4)


def peaks(mesh: Mesh, *, step_bytes: float = 1e9) -> Mapping[tuple[PlanPhase, bool], Peak]:
    found = phase_peaks(
        SHAPE, mesh, ON, step_bytes=step_bytes, usable_bytes=usable_bytes(ON.hardware.instance)
    )
    return {(each.phase, each.is_of_host): each for each in found}


def with_script(monkeypatch: pytest.MonkeyPatch, **changes: float | bool) -> None:
    monkeypatch.setattr(phases, "SHARDS", replace(phases.SHARDS, **changes))


def test_shards_begin_with_one_whole_layer_beside_them() -> None:
    begun = peaks(Mesh(dp_shard=32))[PlanPhase.START, False]

    largest = max(SHAPE.layer_parameters, 2 * SHAPE.embedding_parameters)
    assert begun.num_bytes == pytest.approx(4 * (P / 32 + largest))
    assert begun.fits


def test_a_script_that_begins_with_the_whole_model_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_script(monkeypatch, start_is_by_layer=False, start_host=6.8)
    found = peaks(Mesh(dp_shard=32))

    assert not found[PlanPhase.START, False].fits
    assert "at the start" in str(found[PlanPhase.START, False])
    assert found[PlanPhase.START, True].num_bytes == pytest.approx(8 * 6.8 * P)


def test_every_rank_copies_its_shards_to_its_host() -> None:
    assert peaks(Mesh(dp_shard=32))[PlanPhase.CHECKPOINT, True].num_bytes == pytest.approx(
        8 * 12 * P / 32
    )


def test_the_first_host_alone_has_the_whole_model_at_the_end() -> None:
    assert peaks(Mesh(dp_shard=32))[PlanPhase.END, True].num_bytes == pytest.approx(
        8 * 12 * P / 32 + 4 * P
    )


def test_rank_0_alone_copies_a_replica() -> None:
    assert peaks(Mesh(dp_replicate=32))[PlanPhase.CHECKPOINT, True].num_bytes == pytest.approx(
        12 * P
    )


def test_a_copy_on_the_accelerator_is_beside_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `DTensor.from_local` did: 12 bytes of each parameter of the shard once more."""
    with_script(monkeypatch, checkpoint_device=12.0)

    peak = peaks(Mesh(dp_shard=32), step_bytes=60 * BYTES_PER_GIB)[PlanPhase.CHECKPOINT, False]

    assert peak.num_bytes == pytest.approx(60 * BYTES_PER_GIB + 12 * P / 32)
    assert not peak.fits


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({"start_host": 100.0}, "at the start"),
        ({"checkpoint_device": 12.0 * 8}, "at the checkpoint"),
        ({"end_host_of_first": 100.0}, "at the end"),
    ],
    ids=["start", "checkpoint", "end"],
)
def test_a_plan_that_fits_its_steps_alone_is_out_with_the_cause(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, float | bool], phase: str
) -> None:
    request = PlanRequest(
        model="llama3-70b",
        global_batch_size=32,
        tokens=1e10,
        instance_types=("ml.p5.48xlarge",),
        instance_count=4,
    )
    assert make_plans(request).plans

    with_script(monkeypatch, **changes)

    with pytest.raises(PlanError) as caught:
        make_plans(request)
    assert f"fits only during the steps: {phase}, " in str(caught.value)
