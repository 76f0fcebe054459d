"""The SageMaker jobs of one task: `JobRun` decides what follows, a `JobType` knows its kind. Imports no Airflow.

Read `job_run.py` first: it returns steps (`steps.py`), which `operators/sagemaker_job.py` takes in Airflow's terms.
"""
