"""Linter of training jobs: requests that AWS would reject, ignore or mishandle, found before anything is paid.

`lint` takes the facts of a job and a dated table (`trainyard/catalog/strategy_support.json`); the few rules that need
numbers are code. Every finding says what, why, by which source, and how to fix it. Imports as its parent's. Pure.
"""
