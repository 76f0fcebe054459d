"""Serving of a trained model: its answers to requests, and the serving code in its artifact."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer.artifacts import read_model
from trainer.tasks import LanguageTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from trainer.data.table import TableLayout

BYTES_TOKENIZER = "bytes"
MAX_NEW_TOKENS = 1024
_MAX_SEED = 2**64 - 1
_SCRIPTS = Path(__file__).parents[1]
_SERVED = ("inference.py", "trainer", "trainyard_watch")
_OF_A_PROMPT = ("prompt", "tokens", "max_new_tokens", "temperature", "seed")


def write_serving_code(folder: Path) -> None:
    """Copy the serving code to `folder`: `inference.py` and the packages that it needs, except torch."""
    skipped = shutil.ignore_patterns("__pycache__")
    for name in _SERVED:
        source = _SCRIPTS / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=skipped, dirs_exist_ok=True)
        elif source.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)


def load_served(folder: Path) -> ServedModel:
    """Return the model of an artifact's folder, on the GPU if there is one.

    Raises:
        DataError: the folder has no model of these scripts.
    """
    model, task, content = read_model(folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).eval()
    if isinstance(task, LanguageTask):
        vocabulary = content.get("tokenizer") or {}
        return ServedDecoder(
            model=model, config=task.model_config, vocabulary=vocabulary, device=device
        )
    codes = {
        name: {text: code for code, text in enumerate(texts)}
        for name, texts in content["categories"].items()
    }
    return ServedTable(model=model, layout=task.layout, codes=codes, device=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDecoder:
    """A decoder that continues tokens.

    | Request | Meaning |
    |---|---|
    | `tokens` | tokens to continue |
    | `prompt` | text to continue, instead of `tokens`, if the model was trained on bytes |
    | `max_new_tokens` | 1 to 1,024, by default 32 |
    | `temperature` | by default 0: always the likeliest token |
    | `seed` | seed of the sampling, by default 0 |

    The answer has the new `tokens`, and `text` if the model was trained on bytes.
    """

    model: nn.Module
    config: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    device: torch.device

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the continuation as `tokens`, and as `text` if the model was trained on bytes.

        Raises:
            ValueError: a field of the request is unknown, or its value is not valid for the model.
        """
        _check_names(request, _OF_A_PROMPT)
        given = self._tokens(request)
        new = self._continued(
            given,
            most=_whole(request, "max_new_tokens", 32, low=1, high=MAX_NEW_TOKENS),
            temperature=_temperature(request),
            seed=_whole(request, "seed", 0, low=0, high=_MAX_SEED),
        )
        if not self._is_of_bytes:
            return {"tokens": new}
        text = bytes(token for token in new if token < 256).decode(errors="replace")
        return {"tokens": new, "text": text}

    @property
    def _is_of_bytes(self) -> bool:
        return self.vocabulary.get("name") == BYTES_TOKENIZER

    def _tokens(self, request: Mapping[str, Any]) -> list[int]:
        """Return the tokens to continue.

        Raises:
            ValueError: there are none, one is outside the vocabulary, or the prompt is not text that this model can
                continue.
        """
        if "prompt" in request and "tokens" in request:
            raise ValueError("the request has both prompt and tokens; send one of them")
        if "prompt" in request and not self._is_of_bytes:
            name = self.vocabulary.get("name")
            raise ValueError(
                f"this model accepts tokens only; encode the prompt with {name} and send tokens"
            )
        prompt = request.get("prompt", "")
        if not isinstance(prompt, str):
            raise ValueError(f"prompt is {prompt!r}; allowed: text")  # noqa: TRY004  # of the client
        tokens = request.get("tokens", [*prompt.encode()])
        if not isinstance(tokens, list):
            raise ValueError(f"tokens is {tokens!r}; allowed: a list of ids")  # noqa: TRY004  # of the client
        size = self.config["vocab_size"]
        wrong = [each for each in tokens if type(each) is not int or not 0 <= each < size]
        if wrong or not tokens:
            got = f"has {wrong[0]!r}" if wrong else "is empty"
            raise ValueError(f"tokens {got}; allowed: one or more ids from 0 to {size - 1}")
        return tokens

    @torch.inference_mode()
    def _continued(
        self, tokens: list[int], *, most: int, temperature: float, seed: int
    ) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        new: list[int] = []
        for _ in range(most):
            window = (tokens + new)[-self.config["sequence_length"] :]
            logits = self.model(torch.tensor([window], device=self.device))[0, -1].float().cpu()
            token = _chosen(logits, temperature=temperature, generator=generator)
            if token == self.vocabulary.get("eos_token_id"):
                break
            new.append(token)
        return new


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """A network that predicts one column of a table from the others.

    A request has `rows`, a list of objects (column -> value). A value is missing if its column is absent or null, or
    if its category is unknown to the model. The answer has `predictions`: per row a number, or the `class` and the
    `probabilities` of all classes.
    """

    model: nn.Module
    layout: TableLayout
    codes: Mapping[str, Mapping[str, int]]  # category column -> category -> code
    device: torch.device

    @torch.inference_mode()
    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return `predictions`: for each row a number, or a class and the class probabilities.

        Raises:
            ValueError: there are no rows, a column is unknown, or the value of a number column is not a number.
        """
        _check_names(request, ("rows",))
        rows = request.get("rows")
        if not isinstance(rows, list) or not rows:
            raise ValueError('the request has no rows; send {"rows": [{"column": value, ...}]}')
        known = (*self.layout.numbers, *self.layout.categories, self.layout.target.name)
        for row in rows:
            _check_names(row, known)
        numbers = [[_number(row, name) for name in self.layout.numbers] for row in rows]
        codes = [[self._code(row, name) for name in self.layout.categories] for row in rows]
        outputs = self.model(
            _tensor(numbers, torch.float64, self.device), _tensor(codes, torch.int64, self.device)
        )
        return {"predictions": self._predictions(outputs.float().cpu())}

    def _code(self, row: Mapping[str, Any], name: str) -> int:
        codes = self.codes[name]
        return next((codes[text] for text in _texts(row.get(name)) if text in codes), -1)

    def _predictions(self, outputs: Tensor) -> list[Any]:
        target = self.layout.target
        if not target.classes:
            return (outputs[:, 0].double() * target.std + target.mean).tolist()
        shares = outputs.softmax(dim=1)
        return [
            {
                "class": target.classes[int(row.argmax())],
                "probabilities": {
                    str(name): float(share)
                    for name, share in zip(target.classes, row.tolist(), strict=True)
                },
            }
            for row in shares
        ]


ServedModel = ServedDecoder | ServedTable


def _chosen(logits: Tensor, *, temperature: float, generator: torch.Generator) -> int:
    if temperature <= 0:
        return int(logits.argmax())
    shares = (logits / temperature).softmax(dim=0)
    return int(torch.multinomial(shares, 1, generator=generator))


def _tensor(rows: list[list[Any]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return rows of values as a tensor (rows, columns), even for 0 columns."""
    return torch.tensor(rows, dtype=dtype, device=device).reshape(len(rows), len(rows[0]))


def _texts(value: Any) -> list[str]:
    """Return the texts that may represent a value among a column's categories, the likeliest first.

    Sharding stored the categories as texts. A value of JSON lines is stored as JSON writes it, such as `true`.
    A value of CSV is stored as the file has it: pandas writes `True`, R writes `TRUE`. Some clients write 39.0
    as 39, so both texts are returned for a whole number.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    texts = [json.dumps(value)]
    if isinstance(value, bool):
        texts += [str(value), str(value).upper()]
    elif isinstance(value, float) and value.is_integer():
        texts.append(str(int(value)))
    elif isinstance(value, int) and abs(value) <= sys.float_info.max and float(value) == value:
        texts.append(json.dumps(float(value)))
    return texts


def _whole(request: Mapping[str, Any], name: str, default: int, *, low: int, high: int) -> int:
    """Return the whole number under `name` in a request, or `default` if the request does not have it.

    Raises:
        ValueError: the value is not a whole number from `low` to `high`.
    """
    value = request.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; allowed: whole numbers from {low} to {high}")
    return value


def _temperature(request: Mapping[str, Any]) -> float:
    """Return the temperature of a request, 0 without one.

    Raises:
        ValueError: the value is not a number, or is negative or infinite.
    """
    value = request.get("temperature", 0.0)
    if type(value) not in {int, float} or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"temperature is {value!r}; allowed: a number of at least 0")
    return float(value)


def _number(row: Mapping[str, Any], name: str) -> float:
    """Return a value as a number, NaN if it is missing.

    Raises:
        ValueError: the value is not a number.
    """
    value = row.get(name)
    if value is not None and not isinstance(value, int | float):
        raise ValueError(f"column {name!r} is {value!r}; allowed: a number, or null")
    return float("nan") if value is None else float(value)


def _check_names(given: Any, known: Sequence[str]) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"{given!r} is not a JSON object with the keys {', '.join(known)}")  # noqa: TRY004  # of the client
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise ValueError(f"the key {unknown[0]!r} is not known; allowed: {', '.join(known)}")
