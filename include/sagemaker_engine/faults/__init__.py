"""Faults that the engine simulates on request, such as spot interruptions, lost hosts and service errors.

A fault is a value (`model`) that a user writes as JSON (`reader`). The fault store (`store`) keeps faults in
the engine's SQLite file, where the engine and all runner processes read and claim them. `schedule` draws
interruptions from a seed. `jobs` applies compute faults; `s3_faults` and `api_faults` select the faults of
requests, which `s3` and `http` apply.
"""
