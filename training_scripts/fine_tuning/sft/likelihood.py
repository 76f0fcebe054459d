"""Likelihood of held-out answers under a model, and metrics derived from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sft.errors import FineTuningError
from sft.rows import IGNORED, RowTokenizer, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn
    from transformers import PreTrainedTokenizerBase

    from sft.rows import Tokens

MAX_EXPONENT = 700.0
"""Limit of the exponent: math.exp overflows above about 709."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Tokens of held-out rows.

    If `is_pairs` is true, each row is a pair of answers as in DPO. The chosen answer is then followed by the
    rejected one in `samples`.
    """

    samples: list[Tokens]
    is_pairs: bool

    @classmethod
    def read(
        cls, folder: Path, tokenizer: PreTrainedTokenizerBase, *, method: str, max_length: int
    ) -> HeldOut:
        """Return the rows of a folder, truncated to `max_length` tokens as in the training.

        A row is left out if truncation removes its whole answer. A pair is left out if either answer is removed.

        Raises:
            FineTuningError: no row has an answer within `max_length`, or a row cannot be used.
        """
        rows, samples = RowTokenizer(tokenizer), []
        for where, row in read_rows(folder):
            whole = rows.samples(row, method=method, where=where)
            cut = [each.cut(max_length) for each in whole]
            if all(each.num_trained for each in cut):
                samples += cut
        if not samples:
            raise FineTuningError(
                f"{folder}: no row has an answer within max_length {max_length}; train with a larger max_length, or "
                "check the rows"
            )
        return cls(samples=samples, is_pairs=method == "dpo")


def log_likelihoods(model: nn.Module, samples: list[Tokens]) -> list[float]:
    """Return the log-likelihood of each sample's labeled tokens in nats, computed in float32.

    Raises:
        FineTuningError: a likelihood is NaN or infinite.
    """
    device = next(model.parameters()).device
    values = [_log_likelihood(model, each, device=device) for each in samples]
    if num_spoiled := sum(not math.isfinite(each) for each in values):
        raise FineTuningError(
            f"the likelihood of {num_spoiled} of {len(values)} samples is NaN or infinite under "
            f"{model.config.name_or_path}: its weights are invalid; start from another model"
        )
    return values


@torch.no_grad()
def _log_likelihood(model: nn.Module, sample: Tokens, *, device: torch.device) -> float:
    tokens = torch.tensor([sample.input_ids], device=device)
    logits = model(input_ids=tokens).logits[0, :-1].float()
    wanted = torch.tensor(sample.labels[1:], device=device)
    loss = torch.nn.functional.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="sum")
    return -loss.item()


def answer_metrics(data: HeldOut, *, base: list[float], tuned: list[float]) -> dict[str, float]:
    """Return loss (nats per answer token) and perplexity of both models, and the decrease in loss by the tuning.

    Args:
        data: the evaluated rows.
        base: log-likelihoods of the rows' samples under the base model, in nats.
        tuned: the same under the tuned model.
    """
    num_tokens = sum(each.num_trained for each in data.samples)
    losses = {name: -sum(each) / num_tokens for name, each in (("test", tuned), ("base", base))}
    return {
        "test_loss": losses["test"],
        "base_loss": losses["base"],
        "test_perplexity": math.exp(min(losses["test"], MAX_EXPONENT)),
        "base_perplexity": math.exp(min(losses["base"], MAX_EXPONENT)),
        "gain": losses["base"] - losses["test"],
        "num_tokens": num_tokens,
    }


def pair_metrics(*, base: list[float], tuned: list[float]) -> dict[str, float]:
    """Return the share of pairs with a positive margin under each model, and the growth of the margins.

    The margin of a pair is the log-likelihood of the chosen answer minus that of the rejected one. The growth
    of a margin is its value under the tuned model minus its value under the base model. Multiplied by beta, the
    growth would be DPO's implicit reward margin (Rafailov et al. 2023, section 4).

    The result has the mean growth as `reward_margin`, and the share of margins that grew as `reward_accuracy`.

    Args:
        base: log-likelihoods under the base model; each chosen answer is followed by its rejected answer.
        tuned: the same under the tuned model.
    """
    margins = {name: _margins(each) for name, each in (("test", tuned), ("base", base))}
    grown = [new - old for new, old in zip(margins["test"], margins["base"], strict=True)]
    shares = {name: _share(each) for name, each in margins.items()}
    return {
        "test_preferred": shares["test"],
        "base_preferred": shares["base"],
        "reward_accuracy": _share(grown),
        "reward_margin": sum(grown) / len(grown),
        "gain": shares["test"] - shares["base"],
        "num_pairs": len(grown),
    }


def _margins(values: list[float]) -> list[float]:
    return [chosen - rejected for chosen, rejected in zip(values[::2], values[1::2], strict=True)]


def _share(values: list[float]) -> float:
    return sum(value > 0 for value in values) / len(values)
