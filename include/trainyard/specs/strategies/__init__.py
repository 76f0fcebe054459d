"""Strategies of the SDK's `distribution`, one module each: accepted settings, and hyperparameters for AWS's toolkits.

Pure; may import trainyard.errors. A job's request has the hyperparameters that the SDK v2 (2.257.7) sends for the same
`distribution`. It also has the settings that the toolkit would read but that the SDK drops. A `distribution` that would
be ignored, or would fail in the container, is rejected, and the message has the replacement.
"""
