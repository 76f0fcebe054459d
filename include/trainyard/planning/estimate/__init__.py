"""Estimate of a run before it starts: low, expected and high, learned from earlier runs.

Pure: may import what `trainyard.planning` may. Measurements come in as values, and nothing here reads a clock.
"""
