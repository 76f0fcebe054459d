"""Linter of training jobs: requests that AWS would reject, ignore or mishandle, found before anything is paid.

`lint` takes the facts of a job and a dated table (`include/catalog/strategy_support.json`); few rules that need numbers
are code. Every finding says what, why, by which source, and how to fix it. Same imports as include.planning. Pure.
"""
