"""Autopilot by the SageMaker SDK v2: a small table, three candidates, the best one's metric."""

from __future__ import annotations

import os

import sagemaker
from sagemaker.automl.automlv2 import AutoMLDataChannel, AutoMLTabularConfig, AutoMLV2

session = sagemaker.Session(default_bucket=os.environ["BUCKET"])
rows = [f"{x},{y},{int(3 * x > 2 * y)}" for x in range(20) for y in range(25)]
table = "\n".join(["x,y,is_more", *rows])
data = session.upload_string_as_file_body(
    table, bucket=os.environ["BUCKET"], key="sdk-v2-automl/table.csv"
)
automl = AutoMLV2(
    sagemaker_session=session,
    role=os.environ["ROLE_ARN"],
    base_job_name="sdk-v2-automl",
    output_path=f"s3://{os.environ['BUCKET']}/sdk-v2-automl/output",
    problem_config=AutoMLTabularConfig(
        target_attribute_name="is_more", problem_type="BinaryClassification", max_candidates=3
    ),
    job_objective={"MetricName": "Accuracy"},
)
automl.fit(
    AutoMLDataChannel(s3_data_type="S3Prefix", s3_uri=data, content_type="text/csv;header=present")
)

best = automl.best_candidate()
metric = best["FinalAutoMLJobObjectiveMetric"]
print("best", best["CandidateName"], metric["MetricName"], metric["Value"])
