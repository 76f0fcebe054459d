"""Inputs and checkpoints of a job: channels of every kind, and the checkpoint mirror.

`listing` selects the objects that an instance gets (pure), `placement` puts them into its folder as
links, `pipe` streams them through FIFOs, `checkpoints` mirrors a folder to S3 and back. May import
the object store; knows nothing of jobs, processes or the wire.
"""
