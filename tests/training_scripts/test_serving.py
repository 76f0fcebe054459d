"""A trained model's artifact answers requests by AWS's inference contract, in a process without the repository."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.training_scripts.inference_client import answers_of
from tests.training_scripts.test_evaluate import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.torch


@pytest.fixture
def answers(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that packs and unpacks a model's folder, and returns its answers to requests."""

    def ask(model: Path, *requests: Any) -> list[dict[str, Any]]:
        archive, folder = tmp_path / "model.tar.gz", tmp_path / "served"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(model, arcname=".")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        return answers_of(folder, *requests, python=Path(sys.executable))

    return ask


def test_decoder_continues_a_prompt(make_job: Any, answers: Any) -> None:
    job = make_job()
    assert job.run(max_steps=40, learning_rate=0.02) == [0], job.log()

    text, tokens, drawn, again, *wrong = answers(
        job.base_dir / "model",
        {"prompt": "impo", "max_new_tokens": 8},
        {"tokens": list(b"impo"), "max_new_tokens": 8},
        {"prompt": "impo", "max_new_tokens": 30, "temperature": 1.0, "seed": 3},
        {"prompt": "impo", "max_new_tokens": 30, "temperature": 1.0, "seed": 3},
        {"tokens": [257]},
        {"prompt": ""},
        {"prompts": "impo"},
        {"prompt": "impo", "max_new_tokens": 0},
        [1],
    )

    assert text["tokens"] == tokens["tokens"]
    assert len(text["tokens"]) == 8
    assert bytes(text["tokens"]).decode() == text["text"]
    assert text["text"].startswith("rt ")
    assert drawn == again
    assert [each["error"].partition(";")[0] for each in wrong] == [
        "tokens has 257",
        "tokens has 'none'",
        "'prompts' is not known",
        "max_new_tokens is 0",
        "the request is a list",
    ]


@pytest.mark.slow
def test_table_predicts_classes(make_job: Any, table_data: Path, answers: Any) -> None:
    job = make_job(data=table_data)
    assert job.run(**TABLE) == [0], job.log()

    good, missing, unseen, *wrong = answers(
        job.base_dir / "model",
        {"rows": [{"x": x, "c": c} for x in (2, -2) for c in ("yes", "no")]},
        {"rows": [{"x": 2}]},
        {"rows": [{"x": 2, "c": "maybe", "y": "left"}]},
        {"rows": []},
        {"rows": [{"colour": 1}]},
        {"rows": [{"x": "one"}]},
    )

    names = [each["class"] for each in good["predictions"]]
    assert names == ["left", "right", "right", "left"]
    shares = good["predictions"][0]["probabilities"]
    assert set(shares) == {"left", "right"}
    assert sum(shares.values()) == pytest.approx(1)
    assert missing == unseen
    assert [each["error"].partition(";")[0] for each in wrong] == [
        "the request has no rows",
        "'colour' is not known",
        "column 'x' is 'one'",
    ]


@pytest.mark.slow
def test_table_predicts_numbers(make_job: Any, table_data: Path, answers: Any) -> None:
    job = make_job(data=table_data)
    assert job.run(**TABLE | {"target_column": "z"}) == [0], job.log()

    (answer,) = answers(job.base_dir / "model", {"rows": [{"x": 1, "c": "yes", "y": "left"}]})

    assert answer["predictions"] == [pytest.approx(1, abs=0.5)]
