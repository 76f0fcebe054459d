"""The SageMaker jobs of one task: `JobRun` decides the next step, `JobType` implements a kind of job. Without Airflow.

Read `job_run.py` first: it returns steps (`steps.py`), which `operators/sagemaker_job.py` executes in Airflow.
"""
