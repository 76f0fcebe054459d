"""Training with DeepSpeed's ZeRO: configuration, state and steps.

DeepSpeed is imported on first use, so the rest of the package works without it.
"""
