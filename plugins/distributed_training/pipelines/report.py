"""The last task: what happened in this run, as a page and as data, also when something failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReportOperator(BaseOperator):
    """Writes the run's report."""

    ui_color = "#f0f0f0"

    def __init__(self, *, aws_conn_id: str = "aws_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.aws_conn_id = aws_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the addresses of the report."""
        raise NotImplementedError
