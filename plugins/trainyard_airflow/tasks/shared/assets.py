"""The assets of the pipeline: what starts a run, and what a run leaves.

The scheme is an unregistered one on purpose: for a known one Airflow loads every provider while it parses.
"""

from __future__ import annotations

from airflow.sdk import Asset

DATASET_ASSET = Asset(name="trainyard_dataset", uri="x-trainyard://dataset", group="trainyard")
SHARDS_ASSET = Asset(name="trainyard_shards", uri="x-trainyard://shards", group="trainyard")
MODEL_ASSET = Asset(name="trainyard_model", uri="x-trainyard://model", group="trainyard")
