"""A DAG for a ResNet on folders of images under DDP, on two hosts with GPUs."""

from pathlib import Path

from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

script_pipeline(
    dag_id="own_images",
    source_dir=str(Path(__file__).parent / "images"),
    entry_point="train.py",
    evaluation_entry_point="evaluate.py",
    inputs={"train": "s3://my-bucket/images/train/"},
    evaluation_inputs={"test": "s3://my-bucket/images/test/"},
    hyperparameters={"epochs": 5},
    register_when="accuracy >= 0.8",
    instance_type="ml.g5.2xlarge",
    instance_count=2,
    use_spot_instances=True,
    max_run_s=7200,
)
