"""Emitter of a rank's statistics, called by the training loop at each step.

An error in observing or writing is logged once, and reported to the other ranks with the next exchange of losses. From
then on, all ranks write only the loss, norm and times of each step. Until then, the rank with the error still takes
part in the collectives that some statistics need.

Weights are measured before the update, gradients before clipping, activations in the step's first forward pass. The
norms of a step are read from the device in one transfer, for which clipping waits anyway.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import torch

from trainyard_watch.statistics.choice import (
    ACTIVATIONS,
    ALL_NUMBERS,
    CHANGE,
    GRADIENTS,
    SPREAD,
    WEIGHTS,
    Cadence,
)
from trainyard_watch.statistics.forward_pass import (
    ActivationWatch,
    ConfusionCount,
    describe_inputs,
)
from trainyard_watch.statistics.lines import line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection as Some, Mapping, Sequence

    from torch import Tensor, nn

    from trainyard_watch.statistics.checksums import ReplicaChecksums
    from trainyard_watch.statistics.choice import Choice, Collection
    from trainyard_watch.statistics.host_samples import HostSampler
    from trainyard_watch.statistics.lines import Columns
    from trainyard_watch.statistics.parts import PartWriter
    from trainyard_watch.statistics.shipping import Shipper
    from trainyard_watch.statistics.tensors import ModelTensors

log = logging.getLogger(__name__)
P = ParamSpec("P")
ALIVE_AFTER_S = 10.0
MOST_CLASSES = 50
MARKS = frozenset({"checkpoint", "durable", "checkpoint_failed", "done"})


def _survives(
    observe: Callable[Concatenate[Emitter, P], None],
) -> Callable[Concatenate[Emitter, P], None]:
    """Return the method with its errors caught: an error reduces the statistics, but never ends the training."""

    @functools.wraps(observe)
    def guarded(self: Emitter, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            observe(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 the boundary between observing a run and the run
            self.degrade(error)

    return guarded


class Emitter:
    """Emitter of one rank's statistics; a restarted process has a new one.

    Args:
        tensors: parameters of the model.
        model: model whose activations are observed; None to observe none.
        choice: choice of statistics.
        checksums: checksums of the parameters; None if these are not replicated.

    Attributes:
        writer: writer of this rank's statistics, closed by `close`. Without one, norms are measured for clipping only.
        sampler: sampler of the host, closed by `close`.
        shipper: upload of this host's statistics, ended by `close`.
        is_degraded: whether this rank had an error, or knows of one on another rank.
        has_stopped: whether all ranks know of an error, so they have stopped measuring tensors.
    """

    def __init__(
        self,
        tensors: ModelTensors,
        model: nn.Module | None,
        *,
        choice: Choice,
        checksums: ReplicaChecksums | None = None,
    ) -> None:
        self._tensors, self._choice = tensors, choice
        self.writer: PartWriter | None = None
        self.sampler: HostSampler | None = None
        self.shipper: Shipper | None = None
        self._checksums = checksums if choice.is_on else None
        self._activations = ActivationWatch(model, choice.of(ACTIVATIONS)) if model else None
        self._members = {id(each): self._members_of(each) for each in choice.collections}
        self._step, self._written_at, self._inputs_at = 0, time.monotonic(), 0
        self.is_degraded = self.has_stopped = False
        # Called with the host's samples.
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, Columns] = {}
        self._before: list[Tensor] = []
        self._update_norms: Tensor | None = None

    def degrade(self, error: Exception | None = None) -> None:
        """Reduce the statistics after an error; only the first error is logged.

        This rank's own error ends its observation of activations. The rank still takes part in the collectives of
        other statistics, since the other ranks would wait for it.

        Args:
            error: error on this rank. None: all ranks know of an error, so they stop measuring tensors.
        """
        if not self.is_degraded:
            self.is_degraded = True
            log.error(
                "STATISTICS REDUCED to loss, norm and times from step %d on, training continues: %s",
                self._step,
                f"{type(error).__name__}: {error}"
                if error
                else "another rank failed to measure or write its statistics",
                exc_info=error,
            )
            self._forget_activations()
        if error is None and not self.has_stopped:
            self.has_stopped = True
            self._checksums = None
            self._choice = replace(self._choice, collections=(), batches=Cadence(interval=0))
            self._clear()

    @property
    def listed(self) -> dict[str, list[tuple[str, int | None, str]]]:
        """Tensors of each kind, for the header of each statistics file.

        Each tensor is (name, number of elements, class of the module). For activations the number is None.
        """
        own = self._tensors
        named = list(zip(own.names, own.num_elements, own.module_classes, strict=True))
        listed = {kind: named for kind in (WEIGHTS, GRADIENTS) if self._choice.of(kind)}
        if self._activations and self._choice.of(ACTIVATIONS):
            listed[ACTIVATIONS] = self._activations.listed
        return listed

    @_survives
    def begin_step(self, step: int) -> None:
        """Prepare the observations of the step."""
        self._step = step
        self._clear()
        if self._activations and self._due(ACTIVATIONS, *ALL_NUMBERS):
            self._activations.attach()

    def measure(self) -> tuple[Tensor, float]:
        """Return the total norm of the gradients as a tensor and as a number, and measure gradients and weights."""
        own = self._tensors
        places, gradients = own.gradients()
        norms = own.norms(gradients)
        total = own.total(norms)
        parts = [norms, total.reshape(1).to(norms)]
        weights_due = bool(self._due(WEIGHTS, *ALL_NUMBERS))
        if weights_due:
            parts.append(own.norms(own.parameters))
        numbers = torch.cat(parts).tolist()
        l2 = numbers[: len(norms)]
        self._note_gradients(places, gradients, l2)
        if weights_due:
            self._note_weights(numbers[len(norms) + 1 :])
        return total, numbers[len(norms)]

    @_survives
    def before_update(self) -> None:
        """Sample the weights if this step's update is to be measured."""
        if self._due(WEIGHTS, CHANGE):
            self._before = self._tensors.samples(self._tensors.parameters)

    @_survives
    def after_update(self) -> None:
        """Measure the change of the weights by the optimizer."""
        if self._before:
            norms = self._tensors.update_norms(self._before).tolist()
            self._note(WEIGHTS, {CHANGE}, {"update_l2": norms})
            self._before = []

    def end_step(self, **observed: Any) -> None:
        """Write the step's record.

        `observed` has the record's fields that the caller provides, such as the loss. Their names are those of the
        file format (`trainyard.rules.statistics_file`). This method adds the step, the time, and the statistics of
        tensors that were measured in this step.
        """
        self._note_activations()
        self._write_step(**observed)
        self._write_checksums()
        self._clear()

    @_survives
    def on_record(self, event: str, values: Mapping[str, Any]) -> None:
        """Write a metric event (validation, checkpoint, end) to the statistics; safe to call from any thread.

        The event `beat` is a sign of life. It is written only if the training has written no record for 10 s.
        """
        step = values.get("step", self._step)
        if event == "eval":
            loss, accuracy = values.get("validation_loss"), values.get("validation_accuracy")
            self._write("validation", step=step, loss=loss, accuracy=accuracy)
        elif event in MARKS:
            self._write("mark", mark=event, step=step)
        elif event == "beat" and time.monotonic() - self._written_at >= ALIVE_AFTER_S:
            self._write("mark", mark="alive", step=step)

    @_survives
    def write_host(self, sample: Mapping[str, Any]) -> None:
        """Write a sample of the host; it does not count as a sign of life of the training."""
        record = {"kind": "host", "step": self._step, "time": time.time(), **sample}
        if self.writer:
            self.writer.write(line_of(record))
        for listener in self.listeners:
            listener("host", record)

    def new_confusion(self, num_classes: int) -> ConfusionCount | None:
        """Return a counter of a validation's predictions, or None.

        It is None if statistics are off, or if there are fewer than 2 or more than 50 classes.
        """
        is_wanted = self._choice.is_on and 1 < num_classes <= MOST_CLASSES
        return ConfusionCount(num_classes) if is_wanted else None

    @_survives
    def write_predictions(self, step: int, counts: Sequence[float]) -> None:
        """Write a confusion matrix.

        `counts` has the matrix row by row. A row has the counts of one label, a column those of one
        predicted class.
        """
        size = math.isqrt(len(counts))
        rows = [
            [int(count) for count in counts[row : row + size]]
            for row in range(0, len(counts), size)
        ]
        self._write("predictions", step=step, confusion=rows)

    @_survives
    def see_inputs(self, batch: Sequence[Tensor]) -> None:
        """Write a description of this step's first micro-batch if the step is due."""
        if self.writer and self._choice.batches.has(self._step) and self._step != self._inputs_at:
            self._inputs_at = self._step
            if observed := describe_inputs(batch):
                self._write("inputs", step=self._step, **observed)

    def close(self) -> None:
        """End the host sampler, the file and the upload, and drop the references to the model."""
        self._forget_activations()
        self._checksums = None
        if self.sampler:
            self.sampler.close()
        if self.writer:
            self.writer.close()
        if self.shipper:
            self.shipper.close()

    def _forget_activations(self) -> None:
        if self._activations:
            self._activations.forget()
        self._activations = None

    def _write(
        self, kind: str, tensors: Mapping[str, Columns] | None = None, **record: Any
    ) -> None:
        self._written_at = time.monotonic()
        if self.writer:
            self.writer.write(line_of({"kind": kind, "time": time.time(), **record}, tensors))

    @_survives
    def _note_activations(self) -> None:
        if self._activations and self._choice.of(ACTIVATIONS):
            seen = self._activations.detach()
            if seen:
                self._columns[ACTIVATIONS] = seen

    @_survives
    def _write_step(self, **observed: Any) -> None:
        self._write("step", self._columns, step=self._step, **observed)

    @_survives
    def _write_checksums(self) -> None:
        checksums = self._checksums
        if checksums is None or not self._choice.checksums.has(self._step):
            return
        own = self._tensors
        values = checksums.take([own.local(each) for each in own.parameters], step=self._step)
        self._write(
            "checksums",
            step=self._step,
            group=checksums.label,
            group_size=checksums.size,
            values=values,
        )

    def _due(self, kind: str, *numbers: str) -> list[Collection]:
        """Return the collections of one kind that are due at this step and include any of the given statistics.

        Args:
            kind: weights, gradients or activations.
            numbers: groups of statistics, each NORM, CHANGE or SPREAD. One of them is enough.
        """
        return [
            each
            for each in self._choice.of(kind)
            if each.cadence.has(self._step) and not each.numbers.isdisjoint(numbers)
        ]

    def _members_of(self, collection: Collection) -> frozenset[int] | None:
        """Return the indices of a collection's parameters, or None for all."""
        own = self._tensors
        prefix = "gradient/" if collection.kind == GRADIENTS else ""
        found = frozenset(
            place
            for place, (name, kind) in enumerate(zip(own.names, own.module_classes, strict=True))
            if collection.has_tensor(prefix + name, kind)
        )
        return None if len(found) == len(own.names) else found

    def _note(
        self,
        kind: str,
        numbers: Some[str],
        columns: Columns,
        places: Sequence[int] | None = None,
    ) -> None:
        """Keep statistics for this step's record.

        They are kept for the parameters of each collection that is due at this step and includes at least one of
        the groups in `numbers`. All other parameters get None. Without such a collection, nothing is kept.

        Args:
            kind: weights or gradients.
            numbers: the groups of statistics: NORM, CHANGE or SPREAD.
            columns: the values of each statistic, one per parameter that has a value.
            places: indices of the parameters that have a value, in the order of the values; None for all
                parameters.
        """
        wanted: set[int] | None = set()
        for each in self._due(kind, *numbers):
            members = self._members[id(each)]
            wanted = None if wanted is None or members is None else wanted | members
        if wanted is not None and not wanted:
            return
        count = len(self._tensors.names)
        for name, values in columns.items():
            if wanted is not None or len(values) != count:
                own = dict(zip(range(count) if places is None else places, values, strict=True))
                values = [  # noqa: PLW2901
                    own.get(place) if wanted is None or place in wanted else None
                    for place in range(count)
                ]
            self._columns.setdefault(kind, {})[name] = values

    @_survives
    def _note_gradients(
        self, places: Sequence[int], gradients: Sequence[Tensor], l2: Sequence[float]
    ) -> None:
        self._note(GRADIENTS, ALL_NUMBERS, {"l2": l2}, places)
        if gradients and self._due(GRADIENTS, CHANGE):
            means = self._tensors.mean_abs(gradients, places)
            self._note(GRADIENTS, {CHANGE}, {"mean_abs": means}, places)
        if gradients and self._due(GRADIENTS, SPREAD):
            spreads = self._tensors.spreads(gradients, places, l2)
            self._note(GRADIENTS, {SPREAD}, spreads, places)

    @_survives
    def _note_weights(self, l2: Sequence[float]) -> None:
        """Keep the norms `l2` of the weights and, if a collection needs them, the spreads of the weights.

        Spreads are the statistics of the group SPREAD: mean, variance, percentiles and so on. A collection that has the
        changes or the spreads of weights also gets their norms, because the former are hard to interpret without them.
        """
        own = self._tensors
        self._note(WEIGHTS, ALL_NUMBERS, {"l2": l2})
        if self._due(WEIGHTS, SPREAD):
            self._note(WEIGHTS, {SPREAD}, own.spreads(own.parameters, range(len(own.names)), l2))
