"""State, places, ledger, report and form of every DAG family."""
