"""Statistics of a model's parameters and gradients, and gradient clipping with the measured norms.

Norms are over all elements. Other statistics are over the whole tensor if it has at most 16,384 elements.
Of a larger tensor, about 16,384 elements are sampled, in groups of 16 neighbors at equal distances.
Sampling takes a hundredth of the time that the whole tensor would take, and needs no copy of the
parameters. For sharded parameters a subclass overrides the methods that sum over ranks (`norms`, `total`,
`local`, `added_up`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard_watch.statistics.lines import Columns

SAMPLED_ELEMENTS, RUN_LENGTH = 16_384, 16


class ModelTensors:
    """Trainable parameters of a model that is not sharded: this rank has each parameter as a whole.

    The parameters are in the order of `model.named_parameters()`.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = dict(model.named_modules())
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        self.parameters = [parameter for _, parameter in named]
        self.names = [name for name, _ in named]
        self.num_elements = [parameter.numel() for parameter in self.parameters]
        self.module_classes = [
            type(modules[name.rpartition(".")[0]]).__name__ for name in self.names
        ]

    def gradients(self) -> tuple[list[int], list[Tensor]]:
        """Return the indices of the parameters that have a gradient, and these gradients."""
        places = [place for place, each in enumerate(self.parameters) if each.grad is not None]
        return places, [grad for each in self.parameters if (grad := each.grad) is not None]

    @torch.no_grad()
    def norms(self, tensors: Sequence[Tensor], order: float = 2.0) -> Tensor:
        """Return the norm of each whole tensor, as float32 of shape (number of tensors,).

        The norm of a tensor is NaN or infinite if one of its elements is NaN or infinite.
        """
        if not tensors:
            return torch.zeros(0)
        # torch 2.0 and 2.2 do not have the argument.
        is_lower = any(each.dtype != torch.float32 for each in tensors)
        options = {"dtype": torch.float32} if is_lower else {}
        found = torch._foreach_norm(list(tensors), order, **options)  # noqa: SLF001 the only fused one
        return torch.stack([each.to(tensors[0].device) for each in found])

    @torch.no_grad()
    def total(self, norms: Tensor) -> Tensor:
        """Return the total norm of all gradients from their norms, as `clip_grad_norm_` computes it."""
        return torch.linalg.vector_norm(norms) if len(norms) else torch.zeros(())

    def clip(self, limit: float, total: Tensor) -> None:
        """Scale the gradients down so that their norm `total` is at most `limit`, exactly as `clip_grad_norm_` does."""
        nn.utils.clip_grads_with_norm_(self.parameters, limit, total)

    def local(self, tensor: Tensor) -> Tensor:
        """Return this rank's part of a tensor: all of it, detached."""
        return tensor.detach()

    def added_up(self, sums: Tensor) -> Tensor:
        """Return one sum per tensor, over the whole tensor.

        `sums` has the sums over this rank's parts of the tensors. In this class each rank has the whole tensors, so
        `sums` is returned unchanged.
        """
        return sums

    def samples(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return float32 copies of the sampled elements of this rank's part of each tensor."""
        return [_sampled(self.local(each)).float() for each in tensors]

    @torch.no_grad()
    def update_norms(self, before: Sequence[Tensor]) -> Tensor:
        """Return the norm of each parameter's change since `samples` returned `before`.

        The tensors in `before` are overwritten.
        """
        torch._foreach_sub_(list(before), self.samples(self.parameters))  # the sign does not matter
        squares = [each.square().sum() for each in before]
        return self._whole_sums(squares, before, self.parameters).sqrt()

    @torch.no_grad()
    def mean_abs(self, tensors: Sequence[Tensor], places: Sequence[int]) -> list[float]:
        """Return the mean absolute value of each tensor; `places` are the indices of their parameters."""
        samples = self.samples(tensors)
        sums = self._whole_sums([each.abs().sum() for each in samples], samples, tensors).tolist()
        counts = [max(1, self.num_elements[place]) for place in places]
        return [total / count for total, count in zip(sums, counts, strict=True)]

    @torch.no_grad()
    def spreads(
        self, tensors: Sequence[Tensor], places: Sequence[int], l2: Sequence[float]
    ) -> Columns:
        """Return mean, variance, share of zeros, and 5th and 95th percentile of each tensor.

        The percentiles are over this rank's part.

        Args:
            tensors: weights or gradients.
            places: index of each tensor's parameter.
            l2: norm of each tensor.
        """
        samples = self.samples(tensors)
        counts = [max(1, self.num_elements[place]) for place in places]
        sums = self._whole_sums([each.sum() for each in samples], samples, tensors)
        nonzeros = [torch.count_nonzero(each) for each in samples]
        filled = self._whole_sums(nonzeros, samples, tensors)
        p5, p95 = torch.stack([_percentiles(each) for each in samples]).T.tolist()
        means = [total / count for total, count in zip(sums.tolist(), counts, strict=True)]
        zeros = [1 - number / count for number, count in zip(filled.tolist(), counts, strict=True)]
        return {
            "mean": means,
            "variance": [_variance(*each) for each in zip(l2, means, counts, strict=True)],
            "zero_fraction": zeros,
            "p5": p5,
            "p95": p95,
        }

    def _whole_sums(
        self, sums: Sequence[Tensor], samples: Sequence[Tensor], tensors: Sequence[Tensor]
    ) -> Tensor:
        """Return the sum over each whole tensor, extrapolated from the sum over a sample of the tensor.

        `samples` are taken from this rank's parts of `tensors`, and `sums` are the sums over `samples`.
        """
        factors = [
            self.local(tensor).numel() / max(1, sample.numel())
            for tensor, sample in zip(tensors, samples, strict=True)
        ]
        stacked = torch.stack(list(sums)).double()
        return self.added_up(
            stacked * torch.tensor(factors, dtype=torch.float64, device=stacked.device)
        )


def _sampled(tensor: Tensor) -> Tensor:
    """Return a flat copy of the tensor's elements, or of about 16,384 of them if the tensor is larger.

    To sample a larger tensor, its elements are divided into groups of 16 neighbors. A sample has every n-th
    group, with n odd, so a matrix whose width is a power of two is sampled in all of its columns.
    """
    flat = tensor.reshape(-1)
    if flat.numel() <= SAMPLED_ELEMENTS:
        return flat.clone()
    rows = flat[: flat.numel() // RUN_LENGTH * RUN_LENGTH].view(-1, RUN_LENGTH)
    distance = -(-len(rows) * RUN_LENGTH // SAMPLED_ELEMENTS) | 1
    return rows[::distance].reshape(-1).clone()


def _percentiles(sample: Tensor) -> Tensor:
    if not sample.numel():
        return torch.zeros(2, device=sample.device)
    ranks = torch.tensor([0.05, 0.95], device=sample.device)
    return torch.quantile(sample[:: max(1, sample.numel() // 2048)], ranks)


def _variance(l2: float, mean: float, count: int) -> float:
    """Return l2^2 / count - mean^2, or 0 if rounding makes it negative; NaN stays NaN."""
    value = l2 * l2 / max(1, count) - mean * mean
    return value if math.isnan(value) else max(0.0, value)
