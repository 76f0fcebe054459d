"""Linter of training jobs: requests that AWS would reject, ignore or mishandle, found before anything is paid.

`lint` checks the facts of a job against a dated table (`trainyard/catalog/strategy_support.json`). The few rules with
arithmetic are code. Every finding names the problem, the reason, the source and the fix. May import what
`trainyard.planning` may. Pure.
"""
