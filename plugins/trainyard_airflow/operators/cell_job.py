"""`CellJobOperator`: one training of a comparison, mapped over its cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping


class CellJobOperator(TrainingJobOperator):
    """Trains one cell of a comparison; it fails as any training does, and the comparison goes on without it.

    Args:
        cell: which cell this is (`Cell.to_dict()`), for the function that makes its `spec`. Mapped over.
    """

    custom_operator_name: ClassVar[str] = PoolDemand.CELL.value

    def __init__(self, *, cell: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = cell
