"""Statistics of a training for the rules that watch it: JSON lines, one file a rank, written as it trains.

emitter.py is what the training loop calls; the others are its parts. The format is that of Trainyard's
include/trainyard/rules/statistics_file.py, `trainyard-statistics` version 1.
"""
