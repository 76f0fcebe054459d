"""Faults that the engine simulates on request, such as spot interruptions, lost hosts and service errors.

A fault is a value (`model`) that a user writes as JSON (`reader`). The fault store (`store`) keeps faults
in the engine's SQLite file, where the engine and all runner processes read and claim them. `schedule` draws
random interruptions from a seed. `s3_faults` and `api_faults` select the fault of a request.

Other packages apply the faults:

- `jobs`: faults of hosts, of their bandwidth, and of the allocation of instances.
- `s3` and `channels`: faults of S3 requests.
- `http`: faults of all other service requests.
"""
