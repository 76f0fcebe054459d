"""Strategies of the SDK's `distribution`, one module each: accepted settings, and hyperparameters for AWS's toolkits.

Pure; may import trainyard.errors. A job's request has the hyperparameters that the SDK v2 (2.257.7) sends for the same
`distribution`, and settings that the SDK loses although the toolkit reads them. A `distribution` that would be ignored,
or would fail in the container, is rejected, and the message has the replacement.
"""
