"""Faults of the engine on which a DAG's test runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from tests.conftest import RunningEngine


def put_faults(engine: RunningEngine, *faults: dict[str, Any]) -> None:
    """Put faults in the place of those that hold."""
    url = f"{engine.endpoint_url}/_engine/faults"
    requests.put(url, json=list(faults), timeout=10).raise_for_status()


def put_quotas(engine: RunningEngine, *names: str) -> None:
    """Allow four instances of each of these quotas."""
    url = f"{engine.endpoint_url}/_engine/quotas"
    requests.put(url, json={"*": dict.fromkeys(names, 4)}, timeout=10).raise_for_status()
