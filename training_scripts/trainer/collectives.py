"""Share of collectives in the step time, measured with torch's profiler in a run's last steps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import profiler
from torch.autograd import DeviceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from trainyard_watch.distributed import Ranks

Span = tuple[float, float]
_STEP = "trainyard step"
_ON_CPU, _ON_GPU = "gloo:", "nccl"


class CollectiveProfile:
    """Profiler of the last `num_steps` of `max_steps`; other steps are not profiled.

    A collective counts from its start to its end, whether the rank computes in the meantime or waits for it.
    """

    def __init__(self, *, num_steps: int, max_steps: int, device: torch.device) -> None:
        self.first, self.last = max(1, max_steps - num_steps + 1), max_steps
        self._num_steps, self._is_gpu = num_steps, device.type == "cuda"
        self._under_way = self._whole = 0.0

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Run step `number` in this context, profiled if it is one of the last."""
        if number < self.first or not self._num_steps:
            yield
            return
        kinds = [profiler.ProfilerActivity.CPU]
        kinds += [profiler.ProfilerActivity.CUDA] if self._is_gpu else []
        with profiler.profile(activities=kinds) as profile, profiler.record_function(_STEP):
            yield
        self._count(profile.events())

    def summary(self, ranks: Ranks) -> dict[str, Any]:
        """Return the first and last profiled step and each rank's share of time in collectives (0 to 1, or None).

        Every rank must call it.
        """
        if not self._num_steps:
            return {}
        shares = ranks.gather(self._under_way / self._whole if self._whole else None)
        return {"profiled_steps": [self.first, self.last], "collectives_share": shares}

    def _count(self, events: Iterable[Any]) -> None:
        spans, step = [], (0.0, 0.0)
        for each in events:
            span = (each.time_range.start, each.time_range.end)
            if each.name == _STEP and each.device_type == DeviceType.CPU:
                step = span
            elif each.name.startswith(_ON_CPU) or (
                each.name.startswith(_ON_GPU) and each.device_type == DeviceType.CUDA
            ):
                spans.append(span)
        self._under_way += covered(spans, within=step)
        self._whole += step[1] - step[0]


def covered(spans: Iterable[Span], *, within: Span) -> float:
    """Return the length of `within` that the spans cover together. Worked: 1 to 4 and 3 to 6 cover 4 of 0 to 5."""
    total, end = 0.0, within[0]
    for begin, until in sorted(spans):
        begin, until = max(begin, end), min(until, within[1])  # noqa: PLW2901  # clipped
        if until > begin:
            total, end = total + until - begin, until
    return total
