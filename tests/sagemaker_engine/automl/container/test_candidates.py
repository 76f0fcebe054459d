"""Candidates against real tables: better than a baseline, the same for the same seed, honest about what they saw."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from threadpoolctl import threadpool_limits

from sagemaker_automl_container import scoring, serving
from sagemaker_automl_container.columns import TableError, Wishes, schema_of
from sagemaker_automl_container.ensemble import Chooser
from sagemaker_automl_container.explain import importance
from sagemaker_automl_container.tables import Tables, target_of
from sagemaker_automl_container.train import Recipe, judge
from sagemaker_engine.automl.algorithms import default_point
from sagemaker_engine.automl.plan import ENSEMBLING_ALGORITHMS, METRICS, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Boosting's threads wait for each other by spinning, which a busy machine makes last for ever."""
    with threadpool_limits(1):
        yield


LOADERS = {
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "wine": datasets.load_wine,
}
FASTEST = "linear-learner"


@cache
def tables_of(name: str) -> Tables:
    """Return a bundled table as the analysis leaves it, cross-validated in 3 folds."""
    frame = LOADERS[name](as_frame=True).frame.astype(str)
    schema = {**schema_of(frame, Wishes(target="target")), "seed": 7, "num_folds": 3}
    return Tables(schema=schema, train=frame, validation=None)


def recipe(algorithm: str, problem: str) -> Recipe:
    return Recipe(algorithm=algorithm, point=default_point(algorithm, Problem(problem)), seed=7)


def scores_of(tables: Tables, algorithm: str) -> Any:
    made = recipe(algorithm, tables.schema["problem_type"])
    return made.predict_unseen(tables, made.fit(tables))


def baseline(tables: Tables) -> dict[str, float]:
    """Return the metrics of the mean, or of the classes' shares."""
    truth, classes = tables.truth, tables.schema["classes"]
    if classes is None:
        return scoring.score(truth, np.full(len(truth), truth.mean()), tables.schema)
    shares = np.bincount(truth) / len(truth)
    return scoring.score(truth, np.tile(shares, (len(truth), 1)), tables.schema)


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("breast_cancer", FASTEST),
        ("wine", FASTEST),
        pytest.param("breast_cancer", "extra-trees", marks=pytest.mark.slow),
        *(pytest.param("wine", each, marks=pytest.mark.slow) for each in ("randomforest", "mlp")),
        *(("diabetes", each) for each in ENSEMBLING_ALGORITHMS),
    ],
)
def test_every_algorithm_beats_the_baseline_by_far(name: str, algorithm: str) -> None:
    tables = tables_of(name)
    found, base = judge(tables, scores_of(tables, algorithm)), baseline(tables)
    assert set(METRICS[Problem(tables.schema["problem_type"])]) <= set(found)
    match tables.schema["problem_type"]:
        case "Regression":
            assert found["MSE"] < 0.75 * base["MSE"]
        case _:
            assert found["Accuracy"] > base["Accuracy"] + 0.25
            assert found["LogLoss"] < base["LogLoss"] / 2


@pytest.mark.slow
def test_same_seed_gives_the_same_model() -> None:
    first, second = (scores_of(tables_of("wine"), "randomforest") for _ in range(2))
    assert np.array_equal(first, second)


def test_every_row_is_judged_by_a_model_that_has_not_seen_it() -> None:
    tables = tables_of("wine")
    folds = list(tables.folds())
    assert sorted(np.concatenate([unseen for _, unseen in folds])) == list(range(178))
    assert all(not set(seen) & set(unseen) for seen, unseen in folds)


def test_random_target_scores_no_better_than_chance() -> None:
    generator = np.random.default_rng(3)
    frame = pd.DataFrame(generator.normal(size=(120, 5)), columns=list("abcde")).astype(str)
    frame["target"] = generator.permutation(["no", "yes"] * 60)
    schema = {**schema_of(frame, Wishes(target="target")), "seed": 7, "num_folds": 3}
    tables = Tables(schema=schema, train=frame, validation=None)
    assert 0.35 < judge(tables, scores_of(tables, "extra-trees"))["AUC"] < 0.65


def test_ensemble_is_no_worse_than_its_members_and_its_shares_sum_to_one() -> None:
    tables = tables_of("diabetes")
    predictions = [scores_of(tables, each) for each in (FASTEST, "extra-trees")]
    shares = Chooser(tables.schema, "MSE").choose(predictions, tables.truth, None)
    mixed = sum(share * each for share, each in zip(shares, predictions, strict=True))
    assert sum(shares) == pytest.approx(1.0)
    assert judge(tables, mixed)["MSE"] <= min(judge(tables, each)["MSE"] for each in predictions)


def test_useless_member_gets_no_share() -> None:
    tables = tables_of("wine")
    good = scores_of(tables, FASTEST)
    useless = np.full_like(good, 1 / 3)
    shares = Chooser(tables.schema, "LogLoss").choose([useless, good], tables.truth, None)
    assert shares == [0.0, 1.0]


def test_importance_finds_the_column_that_decides() -> None:
    generator = np.random.default_rng(1)
    frame = pd.DataFrame(generator.normal(size=(200, 3)), columns=["noise", "decides", "other"])
    frame["target"] = 10 * frame["decides"] + frame["other"]
    frame = frame.astype(str)
    schema = {**schema_of(frame, Wishes(target="target")), "seed": 7, "num_folds": 3}
    tables = Tables(schema=schema, train=frame, validation=None)
    fitted = recipe(FASTEST, "Regression").fit(tables)
    model = serving.Model(members=[fitted], weights=[1.0], schema=schema)
    found = importance(model, frame, metric="R2", seed=7)
    assert [each["name"] for each in found][:2] == ["decides", "other"]
    assert found[0]["importance"] > 1.0
    assert abs(found[2]["importance"]) < 0.001


def test_weights_decide_what_is_learned() -> None:
    frame = pd.DataFrame(
        {"x": ["0", "1"] * 50, "target": ["1.5", "2.5"] * 25 + ["7.5", "8.5"] * 25}
    )
    frame["weight"] = ["1"] * 50 + ["0"] * 50
    schema = schema_of(frame, Wishes(target="target", weight="weight"))
    tables = Tables(schema={**schema, "seed": 7, "num_folds": 3}, train=frame, validation=None)
    assert [each["name"] for each in schema["columns"]] == ["x"]
    fitted = recipe(FASTEST, "Regression").fit(tables)
    values = serving.member_scores(fitted, tables.features, tables.schema)
    assert values.mean() == pytest.approx(2.0, abs=0.1)


def test_class_of_the_validation_rows_only_is_refused() -> None:
    tables = tables_of("wine")
    strange = tables.train.assign(target="9")
    with pytest.raises(TableError, match=r"classes that the training data lacks: \['9'\]"):
        target_of(strange, tables.schema)


def test_served_rows_may_have_gaps_and_values_never_seen() -> None:
    frame = pd.DataFrame(
        {
            "color": ["red", "blue", "green"] * 40,
            "size": [str(number % 11) for number in range(120)],
            "day": [f"2026-03-{number % 28 + 1:02d}" for number in range(120)],
            "target": ["no", "no", "yes"] * 40,
        }
    )
    schema = {**schema_of(frame, Wishes(target="target")), "seed": 7, "num_folds": 3}
    tables = Tables(schema=schema, train=frame, validation=None)
    fitted = recipe("extra-trees", "BinaryClassification").fit(tables)
    model = serving.Model(members=[fitted], weights=[1.0], schema=schema)
    answer = serving.predict_fn(
        serving.input_fn("color,size,day\ngreen,1,2026-03-01\nviolet,,never\n", "text/csv"), model
    )
    assert answer["prediction"].iloc[0] == "yes"
    chances = answer[["probability:no", "probability:yes"]].to_numpy()
    assert chances.sum(axis=1) == pytest.approx([1.0, 1.0])
    with pytest.raises(ValueError, match="lack the columns size, day"):
        serving.predict_fn(serving.input_fn('[{"color": "red"}]', "application/json"), model)
