"""Report of a run: one self-contained HTML page, without network access and empty panels, in light and dark."""
