"""A DAG for a DeepSpeed script: ZeRO over two hosts, its own checkpoints, started by torchrun."""

from pathlib import Path

from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

script_pipeline(
    dag_id="own_deepspeed",
    source_dir=str(Path(__file__).parent / "deepspeed"),
    entry_point="train.py",
    evaluation_entry_point="evaluate.py",
    inputs={"train": "s3://my-bucket/digits/train/"},
    evaluation_inputs={"test": "s3://my-bucket/digits/test/"},
    hyperparameters={"max_steps": 200, "stage": 2},
    register_when="accuracy >= 0.9",
    instance_type="ml.g5.12xlarge",
    instance_count=2,
    use_spot_instances=True,
    max_run_s=7200,
)
