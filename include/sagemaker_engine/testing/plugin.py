"""pytest plugin: the fixture `sagemaker_engine`, a running engine that all tests of a session share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.testing.running_engine import RunningEngine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def sagemaker_engine_settings() -> dict[str, Any]:
    """Arguments of `RunningEngine` for the shared engine; override the fixture to set port, region or time_scale."""
    return {}


@pytest.fixture(scope="session")
def sagemaker_engine(
    tmp_path_factory: pytest.TempPathFactory, sagemaker_engine_settings: dict[str, Any]
) -> Iterator[RunningEngine]:
    """A running engine: `client(service)`, `endpoint_url`, `bucket`, `role_arn`, `environment`."""
    root = tmp_path_factory.mktemp("sagemaker-engine")
    running = RunningEngine(root=root, **sagemaker_engine_settings).start()
    yield running
    running.stop()
