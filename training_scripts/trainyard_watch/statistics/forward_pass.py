"""Statistics of a forward pass: the model's inputs, module outputs and predictions.

The hooks on modules exist only during an observed forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.utils.hooks import RemovableHandle

    from trainyard_watch.statistics.choice import Collection
    from trainyard_watch.statistics.lines import Columns

INACTIVITY_PERCENT = 1.0  # a unit that is active less often is dead or saturated: AWS's default
RECTIFIERS = (nn.ReLU, nn.ReLU6)
BOUNDS: dict[type[nn.Module], tuple[float, float]] = {  # of inputs; AWS's SaturatedActivation
    nn.Tanh: (-9.4999, 9.4999),
    nn.Sigmoid: (-23.0, 16.99999),
    nn.Hardtanh: (-1.0, 1.0),
    nn.Hardsigmoid: (-3.0, 3.0),
}
SILENT = (nn.Dropout, nn.Identity, nn.Flatten)
MOST_TOKENS = 20
COLUMNS = ("l2", "mean", "minimum", "maximum", "variance", "zero_fraction", "inactive_fraction",
           "saturated_fraction", "num_elements")  # fmt: skip


class ActivationWatch:
    """Observer of those leaf modules of a model whose outputs belong to one of the statistics collections."""

    def __init__(self, model: nn.Module, collections: Sequence[Collection]) -> None:
        self._modules = {
            name: module
            for name, module in model.named_modules()
            if name and not list(module.children()) and not isinstance(module, SILENT)
        }
        classes = {name: type(module).__name__ for name, module in self._modules.items()}
        wanted = {
            name
            for name, kind in classes.items()
            if any(each.has_tensor(f"{name}_output_0", kind) for each in collections)
        }
        self._modules = {name: each for name, each in self._modules.items() if name in wanted}
        self.listed = [(name, None, classes[name]) for name in self._modules]
        self._handles: list[RemovableHandle] = []
        self._seen: dict[str, Tensor] = {}
        self._fault: Exception | None = None

    def attach(self) -> None:
        """Add hooks for the next forward pass.

        A module's output is the tensor that it returns, or the first element of a tuple that it returns. If a
        module is called several times in the pass, only its first output that is a nonempty floating-point tensor
        is measured.
        """
        self._seen.clear()
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_hook(self._hook(name)))

    def detach(self) -> Columns:
        """Remove the hooks; return the measured statistics as a mapping from the statistic's name to a list of values.

        Each list has one value per observed module, in the order of the attribute `listed`. A value is None if it
        was not measured or does not apply to the module.

        Raises:
            Exception: an output could not be measured during the forward pass. The forward pass itself continued.
        """
        seen, fault = dict(self._seen), self._fault
        self.forget()
        if fault:
            raise fault
        if not seen:
            return {}
        rows = dict(zip(seen, torch.stack(list(seen.values())).tolist(), strict=True))
        columns: Columns = {}
        for place, column in enumerate(COLUMNS[:-1]):
            values = [rows[name][place] if name in rows else None for name, _, _ in self.listed]
            own = [self._where_it_applies(column, each) for each in self._modules.values()]
            columns[column] = [v if ok else None for v, ok in zip(values, own, strict=True)]
        columns["inactivity_percent"] = [
            INACTIVITY_PERCENT if isinstance(each, RECTIFIERS) else None
            for each in self._modules.values()
        ]
        return {name: each for name, each in columns.items() if any(v is not None for v in each)}

    def forget(self) -> None:
        """Remove the hooks and discard the measured values."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._seen.clear()
        self._fault = None

    def _where_it_applies(self, column: str, module: nn.Module) -> bool:
        if column == "inactive_fraction":
            return isinstance(module, RECTIFIERS)
        return column != "saturated_fraction" or type(module) in BOUNDS

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[object, ...], object], None]:
        def measure(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
            if name in self._seen or self._fault:
                return
            tensor = output[0] if isinstance(output, tuple) else output
            try:
                if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.numel():
                    given = inputs[0] if inputs and isinstance(inputs[0], Tensor) else tensor
                    self._seen[name] = _numbers(module, given.detach(), tensor.detach())
            except Exception as error:  # noqa: BLE001 the forward pass continues; `detach` raises it
                self._fault = error

        return measure


@torch.no_grad()
def _numbers(module: nn.Module, given: Tensor, output: Tensor) -> Tensor:
    """Return the statistics of one module's output as one vector; statistics that do not apply are 0.

    The order is that of `COLUMNS`. Only `num_elements`, the last of them, is absent.
    """
    output = output.float()
    count = output.numel()
    zero = output.new_zeros(())
    l2, mean = torch.linalg.vector_norm(output), output.mean()
    low, high = torch.aminmax(output)
    dead = saturated = zero
    if isinstance(module, RECTIFIERS):
        dead = _share_of_idle_units(output > 0)
    elif type(module) in BOUNDS:
        smallest, largest = BOUNDS[type(module)]
        saturated = _share_of_idle_units((given > smallest) & (given < largest))
    variance = (l2 * l2 / count - mean * mean).clamp_min(0)
    zeros = 1 - torch.count_nonzero(output) / count
    return torch.stack([l2, mean, low, high, variance, zeros, dead, saturated])


def _share_of_idle_units(is_active: Tensor) -> Tensor:
    """Return the share of units that are active in less than INACTIVITY_PERCENT of the observations.

    In a tensor with 4 dimensions (images), a unit is a channel, which is an index in dimension 1. In any other
    tensor, a unit is an index in the last dimension.
    """
    unit = 1 if is_active.dim() == 4 else is_active.dim() - 1
    others = [place for place in range(is_active.dim()) if place != unit]
    share = is_active.float().mean(dim=others) if others else is_active.float()
    return (100 * share < INACTIVITY_PERCENT).float().mean()


@torch.no_grad()
def describe_inputs(batch: Sequence[Tensor]) -> dict[str, Any]:
    """Return the number of samples, and the token shares or the channel means of the batch's first tensor.

    - Tokens (integer tensor of shape (batch, time)): the shares of the 20 most frequent tokens.
    - Images (float tensor of shape (batch, channels, height, width)): the mean of each channel.
    - Other inputs: the result is empty.
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
