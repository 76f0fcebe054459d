"""Model card of a model package: any facts of a run give a card that AWS's schema allows."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings, strategies as st

with (
    warnings.catch_warnings()
):  # its shapes have invalid escapes, which Python warns of when it compiles them
    warnings.simplefilter("ignore")
    from sagemaker.core.shapes.model_card_shapes import ModelCardContent

from sagemaker_engine.api.registry.model_card import check_model_card
from trainyard.sagemaker_api.model_card import MOST_CHARACTERS, ModelCard
from trainyard.sagemaker_api.model_package import ModelVersion, render_model_package

if TYPE_CHECKING:
    import pytest

FACTS: dict[str, Any] = {
    "creator": "run 7",
    "artifact": "s3://bucket/model.tar.gz",
    "intended_uses": "Answers in tests.\nNot for people.",
    "training_job_arn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/train",
    "training_image": "registry/pytorch-training:2.10",
    "datasets": ["s3://bucket/data/"],
    "observations": "train: 90 rows, 1200 tokens",
    "metrics": {"train:loss": 1.5, "diverged": float("nan")},
    "hyperparameters": {"lr": 0.1, "layers": [1, 2], "resume": None, "text": "two\nlines"},
    "evaluation_metrics": {"accuracy": 0.75},
    "evaluation_datasets": ["s3://bucket/test/"],
    "details": {"report": "s3://bucket/report.html", "ended_by": None},
}
TEXT = st.builds(lambda part, times: part * times, st.text(max_size=5), st.sampled_from([1, 900]))
NAMES = TEXT | st.integers(0, 10**6).map(str)
NUMBERS = st.dictionaries(NAMES, st.floats() | st.integers(), max_size=4)
VALUES = st.none() | st.booleans() | st.integers() | TEXT | st.lists(st.integers(), max_size=3)


def check(text: str) -> None:
    """Check a card by the engine's schema, and by the SDK's shapes."""
    check_model_card({"ModelCard": {"ModelCardContent": text}})
    ModelCardContent.model_validate_json(text)


def test_card_has_the_facts_of_the_run() -> None:
    card = json.loads(ModelCard(**FACTS).text())

    check(json.dumps(card))
    assert card["model_overview"] == {
        "model_creator": "run 7",
        "model_artifact": ["s3://bucket/model.tar.gz"],
    }
    assert card["intended_uses"] == {"intended_uses": "Answers in tests.\nNot for people."}
    job = card["training_details"]["training_job_details"]
    assert job["training_metrics"] == [{"name": "train:loss", "value": 1.5}]
    assert job["hyper_parameters"] == [
        {"name": "lr", "value": "0.1"},
        {"name": "layers", "value": "[1, 2]"},
        {"name": "text", "value": "two lines"},
    ]
    (evaluation,) = card["evaluation_details"]
    (group,) = evaluation["metric_groups"]
    assert group["metric_data"] == [{"name": "accuracy", "type": "number", "value": 0.75}]
    assert card["additional_information"]["custom_details"] == {"report": "s3://bucket/report.html"}


def test_card_of_a_run_that_knows_little_has_no_empty_sections() -> None:
    card = json.loads(ModelCard(creator="run 7", artifact="s3://bucket/model.tar.gz").text())

    assert list(card) == ["model_overview"]


@settings(max_examples=50, deadline=None)
@given(
    creator=TEXT,
    intended_uses=st.none() | TEXT,
    datasets=st.lists(TEXT, max_size=3),
    observations=st.none() | TEXT,
    metrics=NUMBERS,
    hyperparameters=st.dictionaries(NAMES, VALUES, max_size=4),
    evaluation_metrics=NUMBERS,
    details=st.dictionaries(NAMES, st.none() | TEXT, max_size=3),
)
def test_any_facts_are_a_valid_card(**facts: Any) -> None:
    text = ModelCard(artifact="s3://bucket/model.tar.gz", **facts).text()

    check(text)
    assert "\n" not in text


def test_lists_are_cut_to_the_schemas_limits() -> None:
    numbers = {f"metric {n}": n for n in range(200)}
    text = ModelCard(
        creator="run 7",
        artifact="s3://bucket/model.tar.gz",
        datasets=["s3://bucket/data/"] * 20,
        metrics=numbers,
        hyperparameters=numbers,
        evaluation_metrics=numbers,
        evaluation_datasets=["s3://bucket/data/"] * 20,
    ).text()

    check(text)


def test_version_with_a_card_is_a_draft_within_the_limits(caplog: pytest.LogCaptureFixture) -> None:
    def request(card: ModelCard) -> dict[str, Any]:
        return render_model_package(
            ModelVersion(group="g", model_artifact="s3://b/m", source="job", model_card=card)
        )

    sent = request(ModelCard(**FACTS))["ModelCard"]
    too_long = ModelCard(**{**FACTS, "details": {f"fact {n}": "x" * 1024 for n in range(100)}})

    assert sent == {"ModelCardContent": ModelCard(**FACTS).text(), "ModelCardStatus": "Draft"}
    assert len(too_long.text()) > MOST_CHARACTERS
    assert "ModelCard" not in request(too_long)
    assert "without a model card" in caplog.text
