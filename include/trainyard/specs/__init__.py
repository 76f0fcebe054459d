"""Specs of jobs and confs of runs, as frozen values with the field names of the SageMaker SDK's estimators.

May import trainyard.catalog, trainyard.errors, trainyard.units and trainyard.installation only; uses neither AWS wire
keys nor Airflow. Each value checks its own fields in `__post_init__`. `from_mapping` rejects unknown keys and names the
nearest known ones. One `SpecError` lists all faults.
"""
