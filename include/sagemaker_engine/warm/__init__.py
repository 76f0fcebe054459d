"""Warm workers: programs of jobs as forks of a parent that has imported torch already.

Importing torch, and what the first DistributedDataParallel() imports, takes seconds in every
process; a fork of a process that did it once takes milliseconds. Inside an instance `python`,
`torchrun` and `train` are tiny stand-ins (`stub`) that hand their arguments, environment and file
descriptors to the parent (`parent`), whose child joins the caller's namespaces and becomes the
program (`program`). AWS's toolkit and torchrun run on top unmodified.

Promise: a program sees what it would see in a fresh interpreter, and warmth never makes a job fail:
whatever is unusual (`fitness`) runs in the real interpreter.
"""

from sagemaker_engine.warm.handle import WarmParent

__all__ = ["WarmParent"]
