"""A DAG for a plain torch script: two hosts under torchrun, on spot, measured, registered if it is good enough."""

from pathlib import Path

from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

script_pipeline(
    dag_id="own_plain_torch",
    source_dir=str(Path(__file__).parent / "plain_torch"),
    entry_point="train.py",
    evaluation_entry_point="evaluate.py",
    inputs={"train": "s3://my-bucket/digits/train/"},
    evaluation_inputs={"test": "s3://my-bucket/digits/test/"},
    hyperparameters={"epochs": 10, "learning_rate": 0.01},
    metric_definitions=[{"name": "train:loss", "regex": "train_loss=([0-9.]+)"}],
    register_when="accuracy >= 0.9",
    instance_type="ml.m5.large",
    instance_count=2,
    use_spot_instances=True,
    max_run_s=3600,
    budget_usd=5,
)
