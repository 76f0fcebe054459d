"""The supervising process of one job: it owns the job's whole life and outlives a killed engine.

`launching.launch` starts it, `launching.recover` finds it again after the engine was restarted. It writes to the job
store, the object store and the job's folder, and to nothing else. What happens inside the instances
is AWS's own container toolkit.
"""
