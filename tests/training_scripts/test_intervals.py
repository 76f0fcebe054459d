"""Everything that happens every N steps, with N = 1, in every layout."""

from __future__ import annotations

import json
import math
import re

import pytest

from trainyard.rules.statistics_file import read_statistics

pytestmark = pytest.mark.torch
STEPS = 3
COLLECTIONS = ("weights", "biases", "gradients", "activations", "checksums", "batches")
EVERY_STEP = {
    "max_steps": STEPS, "log_interval": 1, "eval_interval": 1, "eval_batches": 1, "checkpoint_interval": 1,
    "statistics": json.dumps({name: {"save_interval": 1} for name in COLLECTIONS}),
}  # fmt: skip
LAYOUTS = {
    "ddp-2": (2, {"main": "train_ddp"}),
    "replicas-2": (2, {"hybrid_shard_degree": 1}),
    "hsdp-2x2": (4, {"hybrid_shard_degree": 2}),
}
MORE = {
    "profiled": (2, {"profile_steps": 1, "trace_steps": "1:1"}),
    "fsdp-2": (2, {}),
    "tensor-2": (2, {"tensor_parallel_degree": 2}),
    "context-2": (2, {"context_parallel_degree": 2}),
    "pipeline-2": (2, {"pipeline_parallel_degree": 2}),
    "one-rank": (1, {}),
    "state-on-the-host-2x2": (4, {"hybrid_shard_degree": 2, "cpu_offload": "true"}),
    "tensor-2-replicas-2": (4, {"tensor_parallel_degree": 2, "hybrid_shard_degree": 1}),
    "tensor-2-fsdp-2": (4, {"tensor_parallel_degree": 2}),
    "context-2-tensor-2": (4, {"context_parallel_degree": 2, "tensor_parallel_degree": 2}),
    "pipeline-2-replicas-2": (4, {"pipeline_parallel_degree": 2, "hybrid_shard_degree": 1}),
    "recomputed": (2, {"activation_checkpointing": "full"}),
    "compiled": (2, {"compile": "true"}),
}
REPLICAS = {"ddp-2": 2, "replicas-2": 2, "hsdp-2x2": 2, "tensor-2-replicas-2": 2,
            "pipeline-2-replicas-2": 2, "state-on-the-host-2x2": 2}  # fmt: skip


def check(make_job, name, world_size, settings):
    job = make_job()

    codes = job.run(**{"main": "train_fsdp", **EVERY_STEP, **settings}, world_size=world_size)

    assert codes == [0] * world_size, job.log()
    assert len(job.losses()) == STEPS
    assert all(map(math.isfinite, job.losses()))
    assert [event["step"] for event in job.events("eval")] == [1, 2, 3]
    assert {event["step"] for event in job.events("durable")} == {1, 2, 3}
    for rank in range(world_size):
        assert not re.search("STATISTICS (REDUCED|DO NOT REACH)", job.log(rank))
    (folder,) = job.base_dir.rglob("output/data/statistics")
    records = read_statistics(
        {path.name: path.read_text().splitlines(keepends=True) for path in folder.glob("*.jsonl")}
    )
    kinds = [(type(each).__name__, getattr(each, "rank", 0)) for each in records]
    for rank in range(world_size):
        assert kinds.count(("StepRecord", rank)) == STEPS
        assert kinds.count(("Checksums", rank)) == (STEPS if name in REPLICAS else 0)
        assert kinds.count(("Inputs", rank)) == STEPS
    for step in (each for each in records if type(each).__name__ == "StepRecord"):
        assert {"weights", "gradients"} <= step.tensors.keys()
    checksums = {}
    for each in records:
        if type(each).__name__ == "Checksums":
            checksums.setdefault((each.group, each.step), []).append(each.values)
    for told in checksums.values():
        assert len(told) == REPLICAS[name]
        assert all(values == told[0] for values in told)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_trains_with_every_interval_at_one(make_job, name):
    check(make_job, name, *LAYOUTS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_every_layout_trains_with_every_interval_at_one(make_job, name):
    check(make_job, name, *MORE[name])
