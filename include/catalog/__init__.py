"""SageMaker training instance types: hardware and price, from one dated, replaceable file.

May import include.errors and include.units only. `training_instances.csv` is the data; an empty
price means unknown, and nothing here or above turns unknown into zero.
"""
