"""Comparison of training plan offers with spot and on-demand prices, for one planned training.

May import the catalogue, costs, plans and boto3. Promises: searches only; it buys nothing.
"""
