"""Strategies of the SDK's `distribution`, one module each: accepted settings, and hyperparameters for AWS's toolkits.

Pure; may import trainyard.errors. A `distribution` that the SDK v2 (2.257.7) sends is sent with the same content. A
`distribution` that would be ignored, or would fail in the container, is rejected, and the message has the replacement.
"""
