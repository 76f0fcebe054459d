"""Two instances train with DistributedDataParallel under AWS's own toolkit, warm and cold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.warm.handle import WarmParent
from tests.sagemaker_engine.jobs.conftest import BUCKET, JobBench, channel

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.engine, pytest.mark.torch]

TRAIN = """
import argparse, os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lr = parser.parse_args().lr
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
for step in range(5):
    loss = (model(torch.full((2, 4), float(rank + 1))) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step={step} loss={loss.item():.6f}", flush=True)
files = sorted(os.listdir("/opt/ml/input/data/train"))
print(f"rank {rank} of {dist.get_world_size()} at {os.uname().nodename} read {files}", flush=True)
if rank == 0:
    torch.save(model.module.state_dict(), os.environ["SM_MODEL_DIR"] + "/model.pt")
dist.destroy_process_group()
"""
RAISES_ON_RANK_1 = """
import time
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise ValueError("boom on rank 1")
time.sleep(600)
"""
"""Rank 0 calls no collective: it would fail, too, and the reason is of whichever instance ends first."""


@pytest.fixture
def warm_bench(bench: JobBench) -> Iterator[JobBench]:
    parent = WarmParent(bench.settings.root)
    parent.start()
    assert parent.wait_ready(180.0)
    yield bench
    parent.stop()


def train(bench: JobBench, name: str, source: str) -> float:
    hyperparameters = {
        **bench.put_source({"train.py": source}),
        "sagemaker_torch_distributed_enabled": "true",
        "lr": "0.01",
    }
    sharded = {"S3DataDistributionType": "ShardedByS3Key"}
    start = time.monotonic()
    bench.run(
        name,
        instances=2,
        HyperParameters=hyperparameters,
        InputDataConfig=[channel("train", f"s3://{BUCKET}/in", source=sharded)],
        algorithm={"MetricDefinitions": [{"Name": "loss", "Regex": r"loss=([0-9.]+)"}]},
        StoppingCondition={"MaxRuntimeInSeconds": 300},
    )
    return time.monotonic() - start


def test_two_instances_train_together_and_a_failing_rank_is_named(
    warm_bench: JobBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = warm_bench
    for number in range(4):
        bench.objects.put(BUCKET, f"in/{number}", b"x")

    seconds = [train(bench, name, TRAIN) for name in ("one", "two")]
    train(bench, "bad", RAISES_ON_RANK_1)

    row = bench.row("two")
    assert row.status == "Completed", row.state
    assert "rank 0 of 2 at algo-1 read ['0', '2']" in bench.log("two", "algo-1")
    assert "rank 1 of 2 at algo-2 read ['1', '3']" in bench.log("two", "algo-2")
    assert [each["MetricName"] for each in row.state["FinalMetricDataList"]] == ["loss"]
    assert list(bench.archive("out/two/output/model.tar.gz")) == ["model.pt"]
    assert not [line for line in bench.log("two", "algo-2") if "exit barrier" in line]
    bad = bench.row("bad").state["FailureReason"]
    assert bad.startswith("AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage")
    assert "boom on rank 1" in bad
    assert bad.endswith(", exit code: 1")
    with capsys.disabled():
        print(f"\n[2-instance DDP job, create to Completed: {min(seconds):.2f} s]", end=" ")  # noqa: T201
    cold = (bench.settings.root / "warm" / "parent.log").read_text()
    assert "runs cold" not in cold, cold


def test_a_missing_entry_point_is_named(bench: JobBench) -> None:
    hyperparameters = bench.put_source({"other.py": "pass"})

    row = bench.run(
        "missing",
        HyperParameters=hyperparameters,
        algorithm={"TrainingImage": "local/sagemaker-base-python:1"},
    )

    assert row.status == "Failed"
    assert "can't open file '/opt/ml/code/train.py'" in row.state["FailureReason"]
