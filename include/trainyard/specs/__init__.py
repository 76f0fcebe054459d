"""Requests of a run's author, as frozen values in the SageMaker SDK estimator's vocabulary.

May import trainyard.errors and trainyard.units only; knows neither AWS wire keys nor Airflow. Each
value checks in `__post_init__` what it alone can know; `from_mapping` refuses unknown keys by
naming the nearest, and every fault is reported at once in one `SpecError`.
"""
