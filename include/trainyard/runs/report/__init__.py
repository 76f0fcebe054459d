"""Report of a run: one self-contained HTML page, without network access and empty panels, in light and dark."""

from trainyard.runs.report.page import render_report_html

__all__ = ["render_report_html"]
