"""What a run's conf says of its training that the log does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from include.rules.records import Facts

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_LEARNING_RATE_RATIO = 0.1  # the training script's default


def facts_of(conf: Mapping[str, Any]) -> Facts:
    """Return what a run's conf (`RunConf` as JSON) says that its log does not.

    A peak that is scaled with the batch, or that a search chose, is not the conf's.
    """
    settings = {**conf, **(conf.get("hyperparameters") or {})}
    is_declared = not (settings.get("reference_batch_size") or settings.get("tune"))
    batch, length = settings.get("global_batch_size"), settings.get("sequence_length")
    return Facts(
        max_steps=settings.get("max_steps"),
        precision=settings.get("precision"),
        units_per_step=float(batch) * float(length)
        if batch and length and settings.get("model") == "gpt"
        else None,
        peak_learning_rate=settings.get("learning_rate") if is_declared else None,
        warmup_steps=settings.get("warmup_steps"),
        min_learning_rate_ratio=settings.get("min_learning_rate_ratio", MIN_LEARNING_RATE_RATIO)
        if settings.get("model")
        else None,
    )
