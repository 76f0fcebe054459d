"""Searches: the common part of tuning jobs and AutoML jobs.

A search is a stored row, with a row per job that it has decided on. A thread polls and advances every running search.
The tables have the whole state of a search, so it resumes after a restart of the engine.
"""
