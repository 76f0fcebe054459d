"""A trained model's artifact answers requests by AWS's inference contract, in a process without the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import inference
from tests.training_scripts.inference_client import answers_of
from tests.training_scripts.test_evaluate import TABLE
from tests.training_scripts.torch_of_image import python_with_torch
from trainer.data.table import TableLayout, TargetColumn
from trainer.serving import ServedDecoder, ServedTable, write_serving_code
from trainyard.sagemaker_api.images import image_uri

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.torch


@pytest.fixture
def answers(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that packs and unpacks a model's folder, and returns its answers to requests."""

    def ask(model: Path, *requests: Any, python: str = sys.executable) -> list[dict[str, Any]]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        archive = tmp_path / "model.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(model, arcname=".")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        return answers_of(folder, *requests, python=Path(python))

    return ask


LOADED = """
import sys, torch
def packages():
    return {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
known = packages()
import inference
print(*sorted(packages() - known))
"""


def test_handlers_need_no_package_beside_torch(tmp_path: Path) -> None:
    """The artifact therefore has no code/requirements.txt: AWS's image has torch."""
    write_serving_code(tmp_path / "code")
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADED],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "code")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert set(done.stdout.split()) <= {"inference", "trainer", "trainyard_watch"}


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
        "tokens is empty",
        "the key 'prompts' is not known",
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
        {"rows": [{"color": 1}]},
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
        "the key 'color' is not known",
        "column 'x' is 'one'",
    ]


@pytest.mark.slow
def test_table_predicts_numbers(make_job: Any, table_data: Path, answers: Any) -> None:
    job = make_job(data=table_data)
    assert job.run(**TABLE | {"target_column": "z"}) == [0], job.log()

    (answer,) = answers(job.base_dir / "model", {"rows": [{"x": 1, "c": "yes", "y": "left"}]})

    assert answer["predictions"] == [pytest.approx(1, abs=0.5)]


@pytest.mark.slow
def test_models_answer_on_the_torch_of_the_serving_image(
    make_job: Any, table_data: Path, answers: Any, tmp_path: Path
) -> None:
    """The image of the model package has an older torch than the training: the same answers but for drawn tokens."""
    image = image_uri(
        framework="pytorch-inference", region="eu-west-1", instance_type="ml.m5.large"
    )
    version = image.rpartition(":")[2].partition("-")[0]
    assert version != torch.__version__.partition("+")[0]
    older = str(python_with_torch(version, tmp_path))
    drawn = {"prompt": "impo", "max_new_tokens": 9, "temperature": 1.0, "seed": 3}
    decoder, table = make_job(), make_job("table", table_data)
    assert decoder.run(max_steps=40, learning_rate=0.02) == [0], decoder.log()
    assert table.run(**TABLE) == [0], table.log()

    asked = ({"prompt": "impo", "max_new_tokens": 2}, {"tokens": [257]}, drawn)
    text, wrong, sampled = answers(decoder.base_dir / "model", *asked, python=older)
    assert [text, wrong] == answers(decoder.base_dir / "model", *asked)[:2]
    assert len(sampled["tokens"]) <= 9
    row = {"rows": [{"x": 2, "c": "yes"}, {"x": None}]}
    (said,) = answers(table.base_dir / "model", row, python=older)
    (expected,) = answers(table.base_dir / "model", row)
    for ours, theirs in zip(said["predictions"], expected["predictions"], strict=True):
        assert ours["class"] == theirs["class"]
        assert ours["probabilities"] == pytest.approx(theirs["probabilities"])


@pytest.fixture
def decoder() -> ServedDecoder:
    """A decoder of bytes, of which only the checks of requests are used."""
    return ServedDecoder(
        model=torch.nn.Identity(),
        config={"vocab_size": 257, "sequence_length": 8},
        vocabulary={"name": "bytes"},
        device=torch.device("cpu"),
    )


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"prompt": "a", "tokens": [1]}, "both prompt and tokens"),
        ({"prompt": 5}, "prompt is 5"),
        ({"prompt": None}, "prompt is None"),
        ({"tokens": 5}, "tokens is 5"),
        ({"tokens": [True]}, "tokens has True"),
        ({"prompt": "a", "max_new_tokens": 2.5}, "max_new_tokens is 2.5"),
        ({"prompt": "a", "max_new_tokens": True}, "max_new_tokens is True"),
        ({"prompt": "a", "max_new_tokens": "2"}, "max_new_tokens is '2'"),
        ({"prompt": "a", "temperature": -1}, "temperature is -1"),
        ({"prompt": "a", "temperature": None}, "temperature is None"),
        ({"prompt": "a", "temperature": float("nan")}, "temperature is nan"),
        ({"prompt": "a", "seed": 0.5}, "seed is 0.5"),
    ],
)
def test_decoder_refuses_wrong_members(
    decoder: ServedDecoder, request_: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decoder.answer(request_)


class Codes(torch.nn.Module):
    """Returns the codes of the categories."""

    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        del numbers
        return codes


@pytest.mark.parametrize(
    ("categories", "given", "codes"),
    [
        (["4", "5", "6.0"], '["5", 5, 5.0, 6.0, 6, 5.5, null, 1e999, NaN]', [1, 1, 1, 2, 2, -1, -1, -1, -1]),
        (["5", "5.0", "-0.0"], "[5, 5.0, -0.0, 0]", [0, 1, 2, -1]),
        (["1e+20"], f"[1e20, {10**20}, {10**20 + 1}, {10**400}]", [0, 0, -1, -1]),
        (["true", "false", "1", "unknown"], '[true, false, 1, "true"]', [0, 1, 2, 0]),
        (["True", "False"], "[true, false, 1]", [0, 1, -1]),
        (["TRUE", "FALSE"], "[true, false]", [0, 1]),
        (["True", "TRUE", "true"], "[true]", [2]),
        (["0.5", "{}"], "[0.5, {}]", [0, 1]),
    ],
    ids=["whole", "both", "large", "JSON", "pandas", "R", "three spellings", "others"],
)  # fmt: skip
def test_category_is_found_as_the_training_stored_it(
    categories: list[str], given: str, codes: list[int]
) -> None:
    table = ServedTable(
        model=Codes(),
        layout=TableLayout(
            numbers=[],
            means=[],
            stds=[],
            categories=["size"],
            category_sizes=[len(categories)],
            target=TargetColumn(name="y", classes=None),
        ),
        codes={"size": {text: code for code, text in enumerate(categories)}},
        device=torch.device("cpu"),
    )

    answer = table.answer({"rows": [{"size": value} for value in json.loads(given)]})

    assert answer["predictions"] == codes


def test_json_is_named_as_json_whatever_the_client_accepts() -> None:
    assert inference.output_fn({"tokens": [1]}, "text/csv") == (
        '{"tokens": [1]}',
        "application/json",
    )


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the error of AWS's inference toolkit, as its sagemaker_inference/errors.py has it."""
    package = tmp_path / "sagemaker_inference"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "errors.py").write_text(
        "class BaseInferenceToolkitError(Exception):\n"
        "    def __init__(self, status_code, message, phrase):\n"
        "        self.status_code, self.message, self.phrase = status_code, message, phrase\n"
    )
    for name in ("sagemaker_inference", "sagemaker_inference.errors"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("toolkit")
def test_a_wrong_request_has_status_400(decoder: ServedDecoder) -> None:
    for call in (
        lambda: inference.input_fn("{", "application/json"),
        lambda: inference.input_fn("{}", "text/csv"),
        lambda: inference.predict_fn({"prompt": 5}, decoder),
    ):
        with pytest.raises(Exception, match=r".") as caught:
            call()
        assert vars(caught.value)["status_code"] == 400
        assert vars(caught.value)["message"]


def test_a_wrong_request_is_a_value_error_without_the_toolkit(decoder: ServedDecoder) -> None:
    with pytest.raises(json.JSONDecodeError):
        inference.input_fn("{", "application/json")
    with pytest.raises(ValueError, match="prompt is 5"):
        inference.predict_fn({"prompt": 5}, decoder)
