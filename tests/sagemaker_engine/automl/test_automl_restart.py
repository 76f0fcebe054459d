"""An AutoML job survives the death of its engine: the search goes on, and no candidate is trained twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.automl import CLOCK, TARGET, TERMINAL, table
from tests.contract.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

NAME = "survivor"


def start(engine: RunningEngine) -> None:
    """Start a job of two linear candidates and their ensemble."""
    engine.client("s3").put_object(Bucket=engine.bucket, Key="in/table.csv", Body=table())
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{engine.bucket}/in/"}
    algorithms = [{"AutoMLAlgorithms": ["linear-learner"]}]
    engine.client("sagemaker").create_auto_ml_job_v2(
        AutoMLJobName=NAME,
        AutoMLJobInputDataConfig=[
            {"ChannelType": "training", "DataSource": {"S3DataSource": source}}
        ],
        OutputDataConfig={"S3OutputPath": f"s3://{engine.bucket}/out"},
        AutoMLProblemTypeConfig={
            "TabularJobConfig": {
                "TargetAttributeName": TARGET,
                "Mode": "ENSEMBLING",
                "CandidateGenerationConfig": {"AlgorithmsConfig": algorithms},
                "CompletionCriteria": {"MaxCandidates": 3},
            }
        },
        RoleArn=engine.role_arn,
    )


def candidates(engine: RunningEngine) -> list[dict[str, Any]]:
    answer = engine.client("sagemaker").list_candidates_for_auto_ml_job(AutoMLJobName=NAME)
    return list(answer["Candidates"])


def log_of(engine: RunningEngine, name: str) -> str:
    folder = engine.root / "jobs" / "training" / name / "logs"
    return "".join(path.read_text() for path in sorted(folder.glob("*.jsonl")))


@pytest.mark.slow
def test_search_goes_on_after_its_engine_was_killed(own_engine: RunningEngine) -> None:
    start(own_engine)
    before = wait_until(
        lambda: candidates(own_engine),
        lambda found: len(found) == 2,
        clock=CLOCK,
        what="the first candidates",
    )
    own_engine.restart()
    described = wait_until(
        lambda: own_engine.client("sagemaker").describe_auto_ml_job_v2(AutoMLJobName=NAME),
        lambda seen: seen["AutoMLJobStatus"] in TERMINAL,
        clock=CLOCK,
        what="the end of the job",
    )
    after = candidates(own_engine)

    assert described["AutoMLJobSecondaryStatus"] == "Completed"
    assert {each["CandidateName"] for each in before} < {each["CandidateName"] for each in after}
    assert {each["CandidateStatus"] for each in after} == {"Completed"}
    jobs = own_engine.client("sagemaker").list_training_jobs(MaxResults=100)
    names = {each["TrainingJobName"] for each in jobs["TrainingJobSummaries"]}
    assert names == {each["CandidateName"] for each in after}
    assert len(names) == 3
    for name in names:  # No candidate's log holds a second fit.
        assert log_of(own_engine, name).count("validation:F1=") == 1
