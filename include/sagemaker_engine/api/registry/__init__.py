"""Model registry: package groups, packages, models and endpoint configurations in the engine's database.

All of them survive a restart.
"""
