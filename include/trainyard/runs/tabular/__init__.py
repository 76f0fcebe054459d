"""The report of an AutoML run: one self-contained page, from what the service and the run's jobs said.

May import what `trainyard.runs` may. `record` is what is known, `page` the HTML of it. Pure.
"""
