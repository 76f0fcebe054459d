"""Report of an AutoML run: its record, and one self-contained HTML page.

May import what `trainyard.runs` may. `record` has the data, `page` renders the HTML. Pure.
"""
