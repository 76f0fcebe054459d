"""Inputs and checkpoints of a job: channels of all input modes, and the upload of checkpoints.

- `listing` selects the objects that an instance receives, and their order.
- `placement` puts them into its folder as links or copies.
- `pipe` streams them through FIFOs.
- `checkpoints` restores a folder from S3 and uploads its changes.
- `s3_agent` is the access to S3, with simulated faults and retries.

This package may import the object store. It contains nothing about jobs, processes or HTTP.
"""
