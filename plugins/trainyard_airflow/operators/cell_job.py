"""`CellJobOperator`: mapped task that runs one of the trainings by which a run compares strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.planning.pool_slots import PoolDemand
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from collections.abc import Mapping


class CellJobOperator(SageMakerJobOperator):
    """Trains one cell of a comparison of strategies: one strategy on one number of ranks.

    If the training fails, the comparison continues with the other cells.

    Args:
        cell: the cell as `Cell.to_dict()`; the task is mapped over this argument. The function given as `spec`
            reads it.
    """

    custom_operator_name: ClassVar[str] = PoolDemand.CELL.value
    ui_color = "#e6f0fa"

    def __init__(self, *, cell: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = cell
