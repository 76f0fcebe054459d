"""SageMaker training instance types: their hardware and price, from one dated, replaceable data file.

May import include.errors and include.units only. `training_instances.csv` is the data; an empty price means
unknown, and nothing here or above turns unknown into zero.
"""
