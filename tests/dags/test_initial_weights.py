"""A run that begins with the model of an earlier run, in the whole pipeline."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from tests.dags.test_train_end_to_end import put_source, result, run, stored

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]
LLAMA = {
    "num_heads": 4,
    "hyperparameters": {"num_kv_heads": 2, "feed_forward_size": 48, "tied_embeddings": True},
}
WITHOUT_CHANGE = {"max_steps": 1, "warmup_steps": 0, "learning_rate": 1e-30}
"""Settings whose only step leaves every float32 weight as it is."""


def weights_of(s3: Any, artifact: str) -> bytes:
    """Return the safetensors file of a model.tar.gz."""
    with tarfile.open(fileobj=io.BytesIO(stored(s3, artifact))) as archive:
        file = archive.extractfile("model.safetensors")
        assert file
        return file.read()


def test_a_run_begins_with_the_bits_of_an_earlier_runs_model(database, aws_connection, s3):
    source = put_source(s3, aws_connection.bucket)
    first, states = run(database, source=source, strategy="fsdp", **LLAMA)
    assert set(states.values()) <= {"success", "skipped"}
    artifact = result(first, "train")["model_artifact"]

    second, states = run(database, source=source, init_from=artifact, **LLAMA, **WITHOUT_CHANGE)

    assert set(states.values()) <= {"success", "skipped"}
    again = result(second, "train")["model_artifact"]
    assert weights_of(s3, again) == weights_of(s3, artifact)
