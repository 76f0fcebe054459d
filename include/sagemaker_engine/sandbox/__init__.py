"""Instances of a job as Linux namespaces: own file system, host name, processes, network.

`Cluster` starts one process, `cluster_process`, that holds the namespaces of all instances of one
job and dies with the process that started it. Works as root and, through a user namespace, without.
What a machine does not allow is left out and said: see `capabilities`. Standard library only, since
every job pays for what is imported here.
"""
