"""Scikit-learn pipelines for the candidates of an AutoML job: preprocessing per kind of column, then the estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
    TargetEncoder,
)

from sagemaker_automl_container.serving import date_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

NUM_TREES = 150
MAX_BOOSTING_ROUNDS = 300
MAX_ONE_HOT = 20
"""Largest number of one-hot encoded values; columns with more get cross-fitted target encoding."""
NUM_HASHED_WORDS = 1024
NUM_TOPICS = 32
SCALED = frozenset({"linear-learner", "mlp"})


def build(
    algorithm: str, point: Mapping[str, str], schema: Mapping[str, Any], *, seed: int
) -> Pipeline:
    """Return an unfitted pipeline; the step of its estimator is named `model`.

    Args:
        algorithm: linear-learner, randomforest, extra-trees, xgboost, lightgbm or mlp.
        point: Values of the algorithm's hyperparameters, as text.
        schema: Schema of the data, see `columns.schema_of`.
        seed: Seed that makes the fit reproducible.
    """
    is_classifier = schema["classes"] is not None
    scaler = point.get("scaler", "standard") if algorithm in SCALED else None
    estimator = _ESTIMATORS[algorithm](point, is_classifier, seed)
    return Pipeline([("features", _features(schema, scaler, seed)), ("model", estimator)])


def _features(schema: Mapping[str, Any], scaler: str | None, seed: int) -> ColumnTransformer:
    columns = schema["columns"]
    numeric = [each["name"] for each in columns if each["kind"] == "numeric"]
    numeric += [
        part
        for each in columns
        if each["kind"] == "datetime"
        for part in date_columns(each["name"])
    ]
    categories = [each for each in columns if each["kind"] == "categorical"]
    few = [each["name"] for each in categories if each["num_values"] <= MAX_ONE_HOT]
    many = [each["name"] for each in categories if each["num_values"] > MAX_ONE_HOT]
    steps: list[tuple[str, Any, Any]] = []
    if numeric:
        steps.append(("numbers", _numbers(scaler, seed), numeric))
    if few:
        one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", sparse_output=False)
        steps.append(("few", one_hot, few))
    if many:
        encoder = TargetEncoder(random_state=seed)
        steps.append(("many", make_pipeline(encoder, StandardScaler()), many))
    for number, each in enumerate(each for each in columns if each["kind"] == "text"):
        steps.append((f"text-{number}", _topics(seed), each["name"]))
    return ColumnTransformer(steps, sparse_threshold=0.0)


def _numbers(scaler: str | None, seed: int) -> Pipeline:
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    match scaler:
        case None:
            return make_pipeline(imputer)
        case "quantile":
            normal = QuantileTransformer(
                n_quantiles=40, output_distribution="normal", random_state=seed
            )
            return make_pipeline(imputer, normal)
        case "power":
            return make_pipeline(imputer, PowerTransformer())
        case _:
            return make_pipeline(imputer, StandardScaler())


def _topics(seed: int) -> Pipeline:
    words = HashingVectorizer(n_features=NUM_HASHED_WORDS, alternate_sign=False)
    return make_pipeline(words, TfidfTransformer(), TruncatedSVD(NUM_TOPICS, random_state=seed))


def _linear(point: Mapping[str, str], is_classifier: bool, seed: int) -> Any:
    if is_classifier:
        return LogisticRegression(
            C=float(point["C"]),
            class_weight=_class_weight(point),
            max_iter=2000,
            random_state=seed,
        )
    return Ridge(alpha=float(point["alpha"]))


def _forest(point: Mapping[str, str], is_classifier: bool, seed: int) -> Any:
    options = _forest_options(point, seed)
    if is_classifier:
        return RandomForestClassifier(**options, class_weight=_class_weight(point))
    return RandomForestRegressor(**options)


def _extra_trees(point: Mapping[str, str], is_classifier: bool, seed: int) -> Any:
    options = _forest_options(point, seed)
    if is_classifier:
        return ExtraTreesClassifier(**options, class_weight=_class_weight(point))
    return ExtraTreesRegressor(**options)


def _forest_options(point: Mapping[str, str], seed: int) -> dict[str, Any]:
    return {
        "n_estimators": NUM_TREES,
        "max_features": float(point["max_features"]),
        "min_samples_leaf": int(point["min_samples_leaf"]),
        "random_state": seed,
        "n_jobs": 1,
    }


def _boosting(point: Mapping[str, str], is_classifier: bool, seed: int) -> Any:
    options: dict[str, Any] = {
        "learning_rate": float(point["learning_rate"]),
        "max_depth": int(point["max_depth"]) if "max_depth" in point else None,
        "max_leaf_nodes": int(point["max_leaf_nodes"]) if "max_leaf_nodes" in point else None,
        "min_samples_leaf": int(point["min_samples_leaf"]),
        "l2_regularization": float(point["l2"]),
        "max_iter": MAX_BOOSTING_ROUNDS,
        "early_stopping": True,
        "random_state": seed,
    }
    if is_classifier:
        return HistGradientBoostingClassifier(**options, class_weight=_class_weight(point))
    return HistGradientBoostingRegressor(**options)


def _network(point: Mapping[str, str], is_classifier: bool, seed: int) -> Any:
    options = {
        "hidden_layer_sizes": (int(point["width"]),) * int(point["depth"]),
        "alpha": float(point["alpha"]),
        "learning_rate_init": float(point["learning_rate"]),
        "early_stopping": True,
        "n_iter_no_change": 20,
        "max_iter": 500,
        "random_state": seed,
    }
    if is_classifier:
        return MLPClassifier(**options)
    return TransformedTargetRegressor(MLPRegressor(**options), transformer=StandardScaler())


def _class_weight(point: Mapping[str, str]) -> str | None:
    return "balanced" if point.get("class_weight") == "balanced" else None


_ESTIMATORS = {
    "linear-learner": _linear,
    "randomforest": _forest,
    "extra-trees": _extra_trees,
    "xgboost": _boosting,
    "lightgbm": _boosting,
    "mlp": _network,
}
