"""Job runners: one process per job, which supervises the job from start to end and outlives a killed engine.

`launching.launch` starts a runner; `launching.recover` finds it after a restart of the engine. A job's results are in
the job store, the object store and the job's folder. AWS's own container toolkit runs inside the instances.
"""
