"""Searches: what tuning jobs and AutoML jobs have in common.

A search is a stored row, and the rows of the jobs that it decides on, one after the other. A thread takes every search
that runs round by round; all that a round must know is in the tables, so a search goes on after a restart.
"""
