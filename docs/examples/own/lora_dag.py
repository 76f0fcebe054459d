"""A DAG for a LoRA fine-tuning by Hugging Face's Trainer, registered if it beats its base model."""

from pathlib import Path

from trainyard_airflow.tasks.own_script.pipeline import script_pipeline

BUCKET = "s3://my-bucket/lora"

script_pipeline(
    dag_id="own_lora",
    source_dir=str(Path(__file__).parent / "lora"),
    entry_point="train.py",
    framework="huggingface",
    evaluation_entry_point="evaluate.py",
    inputs={"model": f"{BUCKET}/base/", "train": f"{BUCKET}/train/"},
    evaluation_inputs={"base": f"{BUCKET}/base/", "test": f"{BUCKET}/test/"},
    hyperparameters={"max_steps": 200, "learning_rate": 1e-3, "rank": 8},
    register_when="gain > 0.05",
    instance_type="ml.g5.2xlarge",
    instance_count=2,
    use_spot_instances=True,
    max_run_s=7200,
)
