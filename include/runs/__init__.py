"""The record of a run (report.json) and its self-contained HTML report."""
