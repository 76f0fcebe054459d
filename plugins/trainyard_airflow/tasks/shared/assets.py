"""Assets of the pipeline: the input that starts a run, and the outputs of a run.

The scheme `x-trainyard` is not registered. For a registered scheme, Airflow loads every provider while it parses.
"""

from __future__ import annotations

from airflow.sdk import Asset

DATASET_ASSET = Asset(name="trainyard_dataset", uri="x-trainyard://dataset", group="trainyard")
SHARDS_ASSET = Asset(name="trainyard_shards", uri="x-trainyard://shards", group="trainyard")
MODEL_ASSET = Asset(name="trainyard_model", uri="x-trainyard://model", group="trainyard")
