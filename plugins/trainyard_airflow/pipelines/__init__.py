"""The end-to-end pipeline: its params, where a run keeps things, what each job is, the order of the tasks.

DAG files import from here and add id, schedule and owner. Loads neither boto3 nor the Amazon
provider.
"""
