"""A SageMaker endpoint that executes: one port, one state folder, real training jobs.

Start it with `python -m include.local_engine --port 4566 --root DIR`. Nobody imports this package
from production code; it imports neither Airflow nor any other floor, because its truth is
botocore's service model and AWS's own container code: an oracle for the rest, not an echo.

Promise: every answer has the service's shape, every error the service's code and wording, and all
state under the root survives `kill -9` at any moment.
"""
