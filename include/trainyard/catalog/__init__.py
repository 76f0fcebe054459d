"""SageMaker training instance types: hardware and price, from one dated, replaceable file.

May import trainyard.errors and trainyard.units only. `training_instances.csv` is the data. An empty price means
unknown; an unknown price is never treated as zero.
"""
