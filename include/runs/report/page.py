"""Puts the page together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from include.runs.record import RunRecord


def render_report_html(record: RunRecord) -> str:
    """Return the report of a run as one HTML document that needs nothing else."""
    raise NotImplementedError
