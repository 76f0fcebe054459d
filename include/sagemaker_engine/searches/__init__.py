"""Searches: the common part of tuning jobs and AutoML jobs.

A search is stored as one row, plus one row for each of its jobs, inserted before the job is created. A
thread polls and advances every running search. The tables hold the whole state of a search, so the search
resumes after a restart of the engine.
"""
