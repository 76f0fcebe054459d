"""SageMaker training instance types: hardware and price, from one dated, replaceable file.

May import trainyard.errors and trainyard.units only. `training_instances.csv` is the data; an empty
price means unknown, and nothing here or above turns unknown into zero.
"""
