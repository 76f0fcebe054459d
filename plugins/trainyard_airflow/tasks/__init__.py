"""Tasks of the DAG families: their params, their operators, and the specs that Airflow renders from a run's state.

    automl | comparison   tasks of one family         end_to_end   train_end_to_end, with parts that comparison uses
    shared                a run's state and addresses, its ledger, the closing report, the form

DAG files import from here and add id, schedule and owner. The package imports neither boto3 nor the Amazon provider.
"""
