"""Statistics of the model's inputs and predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_TOKENS = 20


@torch.no_grad()
def describe_inputs(batch: Sequence[Tensor]) -> dict[str, Any]:
    """Return the shares of the 20 most frequent tokens, or the channel means of images; empty for other inputs.

    Tokens are an integer tensor (batch, time), images a float tensor (batch, channels, height, width).
    """
    first = batch[0]
    if first.dim() == 2 and not first.is_floating_point():
        counts = torch.bincount(first.flatten())
        most = torch.topk(counts, min(MOST_TOKENS, len(counts)))
        total = first.numel()
        shares = zip(most.indices.tolist(), most.values.tolist(), strict=True)
        return {
            "num_samples": len(first),
            "token_shares": {str(token): count / total for token, count in shares if count},
        }
    if first.dim() == 4 and first.is_floating_point():
        means = first.float().mean(dim=(0, 2, 3)).tolist()
        return {"num_samples": len(first), "channel_means": means}
    return {}


class ConfusionCount:
    """Confusion counts of a classifier on this rank."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._counts: Tensor | None = None

    @torch.no_grad()
    def add(self, outputs: Tensor, labels: Tensor) -> None:
        """Count a batch: outputs (batch, classes), labels (batch)."""
        places = labels.long() * self.num_classes + outputs.argmax(dim=1)
        counts = torch.bincount(places, minlength=self.num_classes**2)
        self._counts = counts if self._counts is None else self._counts + counts

    def flat(self) -> list[float]:
        """Return the counts (classes x classes) as a flat list, row by row: rows are labels, columns predictions."""
        if self._counts is None:
            return [0.0] * self.num_classes**2
        return [float(count) for count in self._counts.tolist()]
