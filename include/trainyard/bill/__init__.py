"""`trainyard bill`: comparison of AWS's bill of a run with the run's ledger and estimate.

cost_explorer   the request for a run's cost by its tags, and the bill from the responses. Pure
reconciliation  bill, ledger and estimate of one run, with the next step after a difference. Pure
__main__        the command, which reads the report and calls Cost Explorer
"""
