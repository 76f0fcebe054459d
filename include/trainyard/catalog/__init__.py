"""Instance types with prices, accelerators, networks, images and supported strategies, from dated, replaceable files.

May import trainyard.errors and trainyard.units only. An empty price in `training_instances.csv` is unknown, not free.
"""
