"""A multilayer perceptron for tables: standardized numbers, embedded categories, SiLU layers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_EMBEDDING_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MLPConfig:
    """Configuration of a perceptron, with the means and standard deviations of its number columns."""

    means: Sequence[float]
    stds: Sequence[float]
    category_sizes: Sequence[int]
    num_outputs: int
    num_layers: int
    hidden_size: int
    dropout: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the config for `trainer.models.build`."""
        return {"kind": "mlp", **dataclasses.asdict(self)}


class MLP(nn.Module):
    """Perceptron that maps numbers (batch, n) and category codes (batch, c) to outputs (batch, num_outputs).

    Numbers are float64, because a column such as a time in unix seconds has differences that float32 does not
    show. They are standardized before they are cast to the dtype of the weights. If a number is NaN or infinite
    after the cast, it counts as missing. It is replaced by the mean, and an additional input marks it as
    missing. A missing category (-1) has its own embedding.
    """

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        mean = torch.tensor(config.means, dtype=torch.float64)
        self.register_buffer("mean", mean, persistent=False)
        scale = torch.tensor([std or 1.0 for std in config.stds], dtype=torch.float64)
        self.register_buffer("scale", scale, persistent=False)
        self.embeddings = nn.ModuleList(
            nn.Embedding(size + 1, embedding_size(size)) for size in config.category_sizes
        )
        width = 2 * len(config.means) + sum(embedding_size(size) for size in config.category_sizes)
        layers: list[nn.Module] = []
        for _ in range(config.num_layers):
            layers += [nn.Linear(width, config.hidden_size), nn.SiLU(), nn.Dropout(config.dropout)]
            width = config.hidden_size
        self.layers = nn.Sequential(*layers, nn.Linear(width, config.num_outputs))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Return logits of the classes, or one standardized number."""
        standard = ((numbers - self.mean) / self.scale).to(self.layers[0].weight.dtype)
        missing = ~standard.isfinite()
        standard = standard.masked_fill(missing, 0.0)
        embedded = [table(codes[:, column] + 1) for column, table in enumerate(self.embeddings)]
        return self.layers(torch.cat([standard, missing.to(standard.dtype), *embedded], dim=1))


def embedding_size(num_categories: int) -> int:
    """Return the width of the embedding of a category column: half the number of categories, from 2 to 64.

    Source: Guo and Berkhahn 2016 bound the width by the number of categories. Half of this number, rounded
    up, is a common choice. Example: 10 categories give a width of 5.
    """
    return max(2, min(MAX_EMBEDDING_SIZE, (num_categories + 1) // 2))
