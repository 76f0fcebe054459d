"""Statistics of a training for the rules: JSON lines in files of each rank, written during the training.

The training loop calls emitter.py; the other modules are its parts. The format is that of Trainyard's
include/trainyard/rules/statistics_file.py, `trainyard-statistics` version 1.
"""
