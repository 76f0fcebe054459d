"""The SageMaker jobs of one task: `JobRun` decides the next step, `JobType` implements a kind of job.

Read `job_run.py` first: it returns steps (`steps.py`), which `operators/sagemaker_job.py` executes in Airflow.
This package itself does not import Airflow.
"""
