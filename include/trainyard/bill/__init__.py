"""`trainyard bill`: AWS's bill of a run, beside its ledger and its estimate.

cost_explorer   the request for a run's cost by its tags, and the answers as a bill. Pure
reconciliation  bill, ledger and estimate of one run, with what to do about a difference. Pure
__main__        the command, which reads the report and calls Cost Explorer
"""
