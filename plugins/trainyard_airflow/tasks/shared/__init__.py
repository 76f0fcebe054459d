"""Parts that all DAG families share: run state, S3 addresses, ledger, report and form."""
