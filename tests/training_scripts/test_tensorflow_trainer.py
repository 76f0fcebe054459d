"""The TensorFlow trainer reads the samples that the others read, in their order; a checkpoint is whole or not there.

Nothing here needs TensorFlow: tests/local_engine/runner/test_tensorflow_jobs.py trains in the engine image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tensorflow_trainer import checkpoint_files
from tensorflow_trainer.hyperparameters import TensorFlowHyperparameters
from tensorflow_trainer.token_samples import TokenSamples, digest_of, order, read_index
from tests.training_scripts.shard_writer import write_token_dataset
from trainer.data import sample_digest
from trainer.data.sample_order import SampleOrder
from trainer.data.shard_index import ShardIndex
from trainer.data.token_blocks import TokenBlocks
from trainer.errors import DataError, HyperparameterError

if TYPE_CHECKING:
    from pathlib import Path


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
        ShardIndex.load(root / "index"), "train", root / "train", sequence_length=16, verify=True
    )
    samples = TokenSamples.open(
        read_index(root / "index"), "train", root / "train", sequence_length=16
    )

    assert len(samples) == len(blocks)
    inputs, targets = blocks[torch.arange(len(blocks))]
    found = samples[np.arange(len(samples))]
    assert found[:, :-1].tolist() == inputs.tolist()
    assert found[:, 1:].tolist() == targets.tolist()


def test_a_shard_that_was_cut_is_told(root: Path) -> None:
    shard = next((root / "train").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])

    with pytest.raises(DataError, match="the index says"):
        TokenSamples.open(read_index(root / "index"), "train", root / "train", sequence_length=16)


def test_the_newest_whole_checkpoint_is_found_and_older_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step in (2, 4, 6):
        checkpoint_files.save(folder, step, {"weights/w": np.full(3, step)}, keep=2)
    assert sorted(path.name for path in folder.glob("*.npz")) == [
        "step-00000004.npz",
        "step-00000006.npz",
    ]

    newest = folder / "step-00000006.npz"
    newest.write_bytes(newest.read_bytes()[:-1])

    path, step, arrays = checkpoint_files.newest(folder)
    assert (path.name, step, arrays["weights/w"].tolist()) == ("step-00000004.npz", 4, [4, 4, 4])


def test_what_this_trainer_has_not_is_refused() -> None:
    with pytest.raises(HyperparameterError, match="precision 'bf16' is not what train_tensorflow"):
        TensorFlowHyperparameters.load('{"precision": "bf16"}')


def test_the_model_folder_that_the_sdk_sends_is_taken() -> None:
    given = TensorFlowHyperparameters.load("{}", ["--model_dir", "s3://bucket/job/model"])

    assert given.model_dir == "s3://bucket/job/model"
