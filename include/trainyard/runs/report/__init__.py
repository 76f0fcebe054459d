"""Report of a run: one self-contained HTML page without network access, in light and dark."""
