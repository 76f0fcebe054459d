"""Requests of a run's author, as frozen values in the SageMaker SDK estimator's vocabulary.

May import trainyard.errors and trainyard.units only; uses neither AWS wire keys nor Airflow. Each value checks its own
fields in `__post_init__`. `from_mapping` rejects unknown keys and names the nearest known ones. One `SpecError` reports
all faults at once.
"""
