"""A DAG for a watched script under SMDDP: spot first, on demand where spot has no capacity."""

from pathlib import Path

from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

script_pipeline(
    dag_id="own_watched",
    source_dir=str(Path(__file__).parent / "watched"),
    entry_point="train.py",
    evaluation_entry_point="evaluate.py",
    evaluation_instance_type="ml.m5.xlarge",
    inputs={"train": "s3://my-bucket/digits/train/"},
    evaluation_inputs={"test": "s3://my-bucket/digits/test/"},
    hyperparameters={"epochs": 10},
    register_when="accuracy >= 0.9",
    framework_version="2.3.0",  # the last with SMDDP
    py_version="py311",
    distribution={"smdistributed": {"dataparallel": {"enabled": True}}},
    instance_count=2,
    capacity_ladder=[
        {"instance_type": "ml.p4d.24xlarge", "use_spot_instances": True, "max_wait_s": 1800},
        {"instance_type": "ml.p4d.24xlarge", "use_spot_instances": False},
    ],
    max_run_s=3600,
)
