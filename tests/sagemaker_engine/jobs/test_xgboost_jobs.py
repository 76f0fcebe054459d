"""XGBoost really trained: the built-in algorithm and a script, on one host and two, interrupted and resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.sagemaker_engine.images.built import need_image
from tests.sagemaker_engine.jobs.conftest import (
    BUCKET,
    SPOT,
    JobBench,
    channel,
    put_faults,
    statuses,
)
from trainyard.rules.records import Trees
from trainyard.rules.statistics_file import read_statistics

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobRow

pytestmark = [pytest.mark.engine, pytest.mark.slow]

IMAGE = {"TrainingImage": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"}
PARAMETERS = {"objective": "reg:squarederror", "num_round": "30", "max_depth": "4", "eta": "0.2"}
NUM_ROWS = 4000
LIMIT_S = 300.0
TOLERANCE = 0.02
"""Of the validation loss: two hosts put the cuts of their histograms a little elsewhere than one does."""


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    need_image("xgboost")


@pytest.fixture
def table(bench: JobBench) -> JobBench:
    """A bench with a table of two files in the bucket: the label first, made of three of eight features."""
    generator = np.random.default_rng(7)
    features = generator.normal(size=(NUM_ROWS, 8))
    label = 2 * features[:, 0] + np.sin(3 * features[:, 1]) + features[:, 2] ** 2
    rows = np.column_stack([label, features])
    halves = {"train/part-0.csv": rows[:1600], "train/part-1.csv": rows[1600:3200]}
    for key, part in {**halves, "validation/part-0.csv": rows[3200:]}.items():
        text = "\n".join(",".join(f"{value:.6f}" for value in row) for row in part)
        bench.objects.put(BUCKET, key, text.encode())
    return bench


def channels(distribution: str = "FullyReplicated") -> list[dict[str, Any]]:
    how = {"source": {"S3DataDistributionType": distribution}, "ContentType": "text/csv"}
    whole = {"ContentType": "text/csv"}
    return [
        channel("train", f"s3://{BUCKET}/train", **how),
        channel("validation", f"s3://{BUCKET}/validation", **whole),
    ]


def final(row: JobRow) -> dict[str, float]:
    return {each["MetricName"]: each["Value"] for each in row.state["FinalMetricDataList"]}


def run(bench: JobBench, name: str, **members: Any) -> JobRow:
    members = {
        "HyperParameters": PARAMETERS,
        "InputDataConfig": channels(),
        "algorithm": IMAGE,
        "StoppingCondition": {"MaxRuntimeInSeconds": 300},
        **members,
    }
    bench.train(name, **members)
    row = bench.wait(name, limit_s=LIMIT_S)
    assert row.status == "Completed", "\n".join(
        [row.state["FailureReason"], *bench.log(name)[-20:]]
    )
    return row


def test_the_algorithm_trains_and_its_metrics_are_the_job_s(table: JobBench) -> None:
    row = run(table, "one")

    rounds = [line for line in table.log("one") if line.startswith("[")]
    assert rounds[0].startswith("[0]#011train-rmse:")
    assert len(rounds) == 30
    assert final(row)["validation:rmse"] < 0.6
    assert list(table.archive("out/one/output/model.tar.gz")) == ["xgboost-model"]


def test_two_hosts_with_half_of_the_data_each_agree_with_one_that_has_all(table: JobBench) -> None:
    alone = final(run(table, "one"))["validation:rmse"]
    row = run(table, "two", instances=2, InputDataConfig=channels("ShardedByS3Key"))

    assert any("Distributed node training with 2 hosts" in line for line in table.log("two"))
    assert any("Train matrix has 1600 rows" in line for line in table.log("two", "algo-2"))
    assert final(row)["validation:rmse"] == pytest.approx(alone, rel=TOLERANCE)


def test_an_interrupted_training_resumes_and_ends_as_the_unbroken_one(table: JobBench) -> None:
    unbroken = final(run(table, "unbroken", instances=2))
    put_faults(table, {"what": "interrupt", "job": "broken", "at": {"step": 12}})

    row = run(table, "broken", instances=2, **SPOT)

    assert statuses(row).count("Interrupted") == 1
    (resumed,) = [line for line in table.log("broken") if "Resuming from iteration" in line]
    assert 1 <= int(resumed.rpartition(" ")[2]) < 30
    assert final(row) == pytest.approx(unbroken, rel=1e-4)


def test_the_rules_learn_which_features_the_trees_rest_on(table: JobBench) -> None:
    run(table, "one")

    archive = table.archive("out/one/output/output.tar.gz")
    files = {
        name: text.decode().splitlines(keepends=True)
        for name, text in archive.items()
        if name.startswith("statistics/")
    }
    trees = [each for each in read_statistics(files) if isinstance(each, Trees)]
    assert [each.step for each in trees] == [10, 20, 30]
    shares = trees[-1].feature_importance
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(shares[name] for name in ("f0", "f1", "f2")) > 0.5


def test_a_script_trains_by_its_own_hand(table: JobBench) -> None:
    script = (
        "import glob, os, pandas, xgboost\n"
        "folder = os.environ['SM_CHANNEL_TRAIN']\n"
        "rows = pandas.concat(pandas.read_csv(f, header=None) for f in glob.glob(folder + '/*'))\n"
        "matrix = xgboost.DMatrix(rows.values[:, 1:], label=rows.values[:, 0])\n"
        "model = xgboost.train({'max_depth': 3}, matrix, 5, evals=[(matrix, 'train')])\n"
        "model.save_model(os.path.join(os.environ['SM_MODEL_DIR'], 'model.json'))\n"
    )

    run(table, "script", HyperParameters=table.put_source({"train.py": script}))

    assert any(line.startswith("[4]\ttrain-rmse:") for line in table.log("script"))
    model = json.loads(table.archive("out/script/output/model.tar.gz")["model.json"])
    assert model["learner"]["gradient_booster"]["name"] == "gbtree"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        pytest.param({"objective": "reg:squarederror"}, "num_round", id="missing"),
        pytest.param({**PARAMETERS, "etta": "1"}, "Extraneous hyperparameter found: etta", id="no"),
    ],
)
def test_what_the_algorithm_does_not_take_fails_the_job(
    table: JobBench, parameters: dict[str, str], said: str
) -> None:
    row = table.run(
        "wrong", HyperParameters=parameters, InputDataConfig=channels(), algorithm=IMAGE
    )

    assert row.status == "Failed"
    assert row.state["FailureReason"].startswith("AlgorithmError: ")
    assert said in row.state["FailureReason"]
