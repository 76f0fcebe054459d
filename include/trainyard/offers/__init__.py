"""Offers of training plans beside spot and on demand, for the instances and hours of a planned training.

May import the catalogue, costs, plans and boto3. Promises: searches only; it buys nothing.
"""
