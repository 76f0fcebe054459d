"""Warm workers: programs of jobs that start as forks of a parent process in which torch is already imported.

Importing torch, and the modules that the first DistributedDataParallel() imports, takes seconds per
process. A fork of a process that has imported them takes milliseconds.

Inside an instance `python`, `torchrun` and `train` are small stubs (`stub`). A stub sends its arguments,
environment and file descriptors to the parent (`parent`). The parent forks a supervisor (`supervisor`),
which joins the namespaces of the stub and forks the program (`program`). AWS's toolkit and torchrun need no
changes for this.

Promises: a program sees the same state as in a new interpreter. A job never fails because of warm workers:
a program that cannot run as a fork (`fitness`) runs in the real interpreter.
"""
