"""Comparison of training plan offers with spot and on-demand prices, for one planned training.

May import the catalogue, costs, plans and boto3. The package only searches for offers and never buys one.
"""
