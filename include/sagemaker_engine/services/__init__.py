"""Services beside SageMaker, S3 and Logs: moto in this process, and what moto lacks."""
