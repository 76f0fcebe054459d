from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.s3.object_store import ObjectStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    """An object store with the empty bucket `data`."""
    store = ObjectStore(tmp_path / "s3")
    store.create_bucket("data-bucket")
    return store
