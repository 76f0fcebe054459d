"""A run's record as one self-contained HTML page: no network, no empty panel, light and dark."""

from trainyard.runs.report.page import render_report_html

__all__ = ["render_report_html"]
