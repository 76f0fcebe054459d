"""Assets of the pipeline: the input that starts a run, and the outputs of a run.

Airflow does not normalize a URI whose scheme starts with `x-`, such as `x-trainyard`. For other schemes
except `file`, it loads every provider to find a normalizer, while it parses the DAG file.
"""

from __future__ import annotations

from airflow.sdk import Asset

DATASET_ASSET = Asset(name="trainyard_dataset", uri="x-trainyard://dataset", group="trainyard")
SHARDS_ASSET = Asset(name="trainyard_shards", uri="x-trainyard://shards", group="trainyard")
MODEL_ASSET = Asset(name="trainyard_model", uri="x-trainyard://model", group="trainyard")
