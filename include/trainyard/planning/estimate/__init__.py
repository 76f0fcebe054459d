"""Estimate of a run before it starts: low, expected and high, learned from earlier runs.

May import what `trainyard.planning` may. Pure: measurements are arguments, and no clock is read.
"""
