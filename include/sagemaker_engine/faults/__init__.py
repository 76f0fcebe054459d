"""Faults that the engine simulates on request, such as spot interruptions, lost hosts and service errors.

A fault is a value (`model`) that a user writes as JSON (`reader`). The fault store (`store`) keeps faults
in the engine's SQLite file, where the engine and all runner processes read and claim them. `schedule` draws
random interruptions from a seed. `s3_faults` and `api_faults` select the fault of a request.

Other packages apply the faults. `jobs` applies those of hosts and of requests for instances. `s3` and
`channels` apply those of S3 requests, and `http` those of all other requests.
"""
