"""The scripts as a job meets them: started by torchrun, over what sharding wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.limits import EVENT_LIMIT_S
from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset
from trainyard.specs.strategies.torch_distributed import RANK_RESTARTS

pytestmark = pytest.mark.torch
SCRIPTS = Path(__file__).parents[2] / "training_scripts"


def shard(source, tmp_path, **settings):
    """Return the folder of the data set that sharding makes of `source`."""
    result = shard_dataset(
        Source(uri=str(source)),
        ShardSettings(validation_fraction=0.2, test_fraction=0.1, **settings),
        LocalObjects(tmp_path / "s3"),
        destination="s3://bucket/trainyard",
    )
    return tmp_path / "s3" / result.uri.removeprefix("s3://")


def test_shards_of_text_are_trained_on(make_job, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(40):
        (source / f"{number}.txt").write_text(
            f"def function_{number}(self):\n    return None\n" * 9
        )
    job = make_job(data=shard(source, tmp_path, num_shards=4))

    codes = job.run(world_size=2, max_steps=30, learning_rate=0.02)

    assert codes == [0, 0], job.log()
    summary = json.loads((job.base_dir / "output/data/summary.json").read_text())
    assert summary["validation_loss"] < summary["unigram_loss"]


def test_shards_of_a_table_are_trained_on(make_job, tmp_path):
    source = tmp_path / "table.csv"
    lines = [f"{n},{n % 7 - 3}.5,{'left' if n % 2 else 'right'},{n % 2}" for n in range(400)]
    source.write_text("\n".join(["id,x,side,label", *lines]) + "\n")
    job = make_job(data=shard(source, tmp_path, target_column="label"))

    codes = job.run(model="mlp", max_steps=60, learning_rate=0.02, eval_interval=20, eval_batches=0)

    assert codes == [0], job.log()
    assert job.events("eval")[-1]["validation_accuracy"] == 1.0


@pytest.mark.slow
def test_torchrun_starts_two_ranks(tmp_path, token_data):
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "data").symlink_to(token_data)
    hyperparameters = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "sequence_length": 16}
    environ = os.environ | {
        "SAGEMAKER_BASE_DIR": str(tmp_path),
        "SM_HPS": json.dumps(hyperparameters),
        "OMP_NUM_THREADS": "1",
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]

    done = subprocess.run(
        [*torchrun, "train_ddp.py", "--max_steps", "3", "--global_batch_size=8"],
        cwd=SCRIPTS,
        env=environ,
        capture_output=True,
        text=True,
        timeout=EVENT_LIMIT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("trainyard done step=3 ")
    assert (tmp_path / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_torchrun_on_two_hosts_starts_a_killed_rank_again(tmp_path, token_data, free_port):
    """As AWS's toolkit launches several hosts: static rendezvous, whose store outlives a restart."""
    hosts = [tmp_path / "algo-1", tmp_path / "algo-2"]
    agents = []
    for number, base_dir in enumerate(hosts):
        (base_dir / "input").mkdir(parents=True)
        (base_dir / "input" / "data").symlink_to(token_data)
        environ = os.environ | RANK_RESTARTS | {
            "SAGEMAKER_BASE_DIR": str(base_dir),
            "SM_HPS": json.dumps({"num_layers": 1, "hidden_size": 16, "sequence_length": 16}),
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc_per_node=1",
        ]
        where = ["--master_addr=127.0.0.1", f"--master_port={free_port}", f"--node_rank={number}"]
        what = ["train_ddp.py", "--max_steps=300", "--log_interval=1", "--checkpoint_interval=10"]
        with (base_dir / "log").open("w") as log:
            agents.append(
                subprocess.Popen([*command, *where, *what], cwd=SCRIPTS, env=environ, stdout=log)
            )
    deadline = time.monotonic() + EVENT_LIMIT_S
    while "trainyard step=20 " not in (hosts[0] / "log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    agent = agents[1].pid
    (rank,) = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    os.kill(int(rank), signal.SIGKILL)

    assert [each.wait(EVENT_LIMIT_S) for each in agents] == [0, 0]

    log = (hosts[0] / "log").read_text()
    assert log.count("trainyard start ") == 2
    assert "trainyard done step=300 " in log
