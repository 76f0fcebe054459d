"""Instances of a job as Linux namespaces: each has its own file system, host name, processes and network.

`cluster.SandboxCluster` starts one process (`cluster_process`), which holds the namespaces of all instances of one job
and dies with the process that started it. This works as root and, with a user namespace, without root. Features that a
machine does not allow are omitted and reported in the log, see `capabilities`. This package imports the standard
library only, because every job pays for its imports.
"""
