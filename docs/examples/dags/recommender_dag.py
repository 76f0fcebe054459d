"""Recommender: a full training on all interactions, started by hand, on GPUs with a fallback from spot to on demand."""

from __future__ import annotations

from trainyard_airflow.tasks.end_to_end.pipeline import training_pipeline

training_pipeline(
    dag_id="recommender_full",
    schedule=None,
    tags=["trainyard", "recommender"],
    defaults={
        "source": "s3://my-bucket/interactions/",
        "data_format": "parquet",
        "model": "mlp",
        "target_column": "clicked",
        "shard_instance_count": 4,  # sharded by a processing job, not by the Airflow worker
        "max_steps": 50_000,
        "global_batch_size": 4096,
        "micro_batch_size": 512,
        "instance_count": 2,
        "capacity_ladder": [
            {"instance_type": "ml.g5.12xlarge", "use_spot_instances": True, "max_wait_s": 7200},
            {"instance_type": "ml.g5.12xlarge", "use_spot_instances": False},
        ],
        "max_run_s": 6 * 3600,
        "approval_above_usd": 200,  # a person approves a dearer run in Airflow's Required Actions
        "model_package_group": "recommender",
    },
)
