"""A model spread over ranks: shards, replicas of them, split layers, split sequences, stages, by torch's own means.

Imports the trainer's other modules; nothing of these imports this package. The arithmetic is that of one process:
losses agree within the tolerance that the README states, whatever the degrees.
"""
