"""The TensorFlow trainer reads the samples that the others read, in their order; a checkpoint is whole or not there.

Nothing here needs TensorFlow: tests/sagemaker_engine/jobs/test_tensorflow_jobs.py trains in the engine image.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tensorflow_trainer import checkpoint_files
from tensorflow_trainer.hyperparameters import (
    TensorFlowHyperparameters,
    check_batch,
)
from tensorflow_trainer.token_samples import TokenSamples, digest_of, order
from tests.training_scripts.shard_writer import write_token_dataset
from trainer.batching import num_evaluated
from trainer.data import sample_digest
from trainer.data.sample_order import SampleOrder
from trainer.data.shard_index import ChannelIndex
from trainer.data.token_blocks import TokenBlocks
from trainyard_watch.errors import CheckpointError, DataError, HyperparameterError

IDENTITY = {
    "model": {"num_layers": 2, "hidden_size": 32},
    "data_fingerprint": "abc",
    "seed": 3,
    "global_batch_size": 8,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    documents = [bytes(range(i, i + 50)) for i in range(12)]
    return write_token_dataset(tmp_path, {"train": documents[:9], "validation": documents[9:]})


@pytest.mark.parametrize("num_samples", [1, 2, 7, 64, 1000])
def test_the_order_is_that_of_the_other_trainers(num_samples: int) -> None:
    wanted = SampleOrder(num_samples=num_samples, seed=3).samples(5, 5 + 2 * num_samples)

    assert (
        order(5, 5 + 2 * num_samples, num_samples=num_samples, seed=3).tolist() == wanted.tolist()
    )


def test_the_digest_is_that_of_the_other_trainers() -> None:
    samples = [0, 1, 5, 1 << 40]

    assert digest_of(np.array(samples)) == sample_digest.digest_of(torch.tensor(samples))


def test_samples_are_those_of_the_other_trainers_across_shards(root: Path) -> None:
    blocks = TokenBlocks.open(
        ChannelIndex.load(root / "index"), "train", root / "train", sequence_length=16, verify=True
    )
    samples = opened(root, verify=True)

    assert len(samples) == len(blocks)
    inputs, targets = blocks[torch.arange(len(blocks))]
    found = samples[np.arange(len(samples))]
    assert found[:, :-1].tolist() == inputs.tolist()
    assert found[:, 1:].tolist() == targets.tolist()


def opened(root: Path, *, verify: bool) -> TokenSamples:
    index = ChannelIndex.load(root / "index")
    return TokenSamples.open(index, "train", root / "train", sequence_length=16, verify=verify)


def test_samples_need_no_torch() -> None:
    """TensorFlow's images do not have it."""
    code = "import sys; sys.modules['torch'] = None; import tensorflow_trainer.token_samples"
    scripts = Path(__file__).parents[2] / "training_scripts"

    subprocess.run([sys.executable, "-c", code], cwd=scripts, check=True)


def test_a_shard_that_was_cut_is_told(root: Path) -> None:
    shard = next((root / "train").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])

    with pytest.raises(DataError, match=r"bytes, but \d+ in the index"):
        opened(root, verify=False)


def test_a_damaged_shard_of_the_same_size_is_told_unless_shards_are_not_verified(
    root: Path,
) -> None:
    shard = next((root / "train").iterdir())
    content = bytearray(shard.read_bytes())
    content[0] ^= 1
    shard.write_bytes(content)

    with pytest.raises(DataError, match=rf"shard {shard} has SHA-256 \w+, but \w+ in the index"):
        opened(root, verify=True)
    assert len(opened(root, verify=False))


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step in (2, 4, 6):
        checkpoint_files.save(folder, step, {"weights/w": np.full(3, step)})

    newest = folder / "step-00000006.npz"
    newest.write_bytes(newest.read_bytes()[:-1])

    path, step, arrays = checkpoint_files.newest(folder)
    assert (path.name, step, arrays["weights/w"].tolist()) == ("step-00000004.npz", 4, [4, 4, 4])


def saved_by(folder: Path, found: object) -> tuple[Path, dict[str, np.ndarray]]:
    checkpoint_files.save(folder, 2, {checkpoint_files.IDENTITY: np.array(json.dumps(found))})
    path, _, arrays = checkpoint_files.newest(folder)
    return path, arrays


def test_a_checkpoint_of_the_same_run_is_taken(tmp_path: Path) -> None:
    checkpoint_files.check_identity(*saved_by(tmp_path / "checkpoints", IDENTITY), IDENTITY)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"seed": 4}, "seed is 4 in the checkpoint and 3 in this run"),
        ({"global_batch_size": 16}, "global_batch_size is 16 in the checkpoint and 8 in this run"),
        (
            {"data_fingerprint": "abd"},
            "data_fingerprint is 'abd' in the checkpoint and 'abc' in this run",
        ),
        ({"model": {"num_layers": 3, "hidden_size": 32}}, "model is {'num_layers': 3"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, there: dict, said: str) -> None:
    path, arrays = saved_by(tmp_path / "checkpoints", IDENTITY | there)

    with pytest.raises(CheckpointError) as caught:
        checkpoint_files.check_identity(path, arrays, IDENTITY)

    (finding,) = caught.value.findings
    assert finding.startswith(f"the checkpoint {path} belongs to another run: {said}")
    assert finding.count(" in the checkpoint and ") == 1


def test_a_checkpoint_that_does_not_tell_its_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="seed is None in the checkpoint and 3"):
        checkpoint_files.check_identity(tmp_path, {"weights/w": np.zeros(1)}, IDENTITY)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("precision", "bf16"),
        ("on_non_finite", "skip"),
        ("most_skipped_steps", 2),
        ("early_stopping_patience", 1),
        ("profile_steps", 3),
        ("trace_steps", "2:3"),
        ("tensorboard_dir", "scalars"),
        ("num_workers", 2),
        ("distributed_timeout_s", 30.0),
    ],
)
def test_what_this_trainer_has_not_is_refused(name: str, value: object) -> None:
    with pytest.raises(HyperparameterError) as caught:
        TensorFlowHyperparameters.load(json.dumps({name: value}))

    (finding,) = caught.value.findings
    assert finding.startswith(
        f"{name} {value!r} is not supported by train_tensorflow.py; leave it at"
    )


@pytest.mark.parametrize("size", [None, 4])
def test_a_replicas_part_of_a_batch_is_accepted_as_micro_batch(size: int | None) -> None:
    hp = TensorFlowHyperparameters(global_batch_size=8, micro_batch_size=size)

    check_batch(hp, num_replicas=2, num_samples=100)


def test_a_micro_batch_that_needs_accumulation_is_refused() -> None:
    hp = TensorFlowHyperparameters(global_batch_size=8, micro_batch_size=2, max_steps=3)

    with pytest.raises(
        HyperparameterError,
        match=r"micro_batch_size 2 .* leave micro_batch_size out, or set it to 4$",
    ):
        check_batch(hp, num_replicas=2, num_samples=100)


@pytest.mark.parametrize(("eval_batches", "num_samples"), [(2, 16), (4, 20), (0, 20)])
def test_an_evaluation_takes_no_sample_twice(eval_batches: int, num_samples: int) -> None:
    hp = TensorFlowHyperparameters(global_batch_size=8, eval_batches=eval_batches)

    assert num_evaluated(hp, num_samples=20) == num_samples


def test_the_model_folder_that_the_sdk_sends_is_taken() -> None:
    given = TensorFlowHyperparameters.load("{}", ["--model_dir", "s3://bucket/job/model"])

    assert given.model_dir == "s3://bucket/job/model"
