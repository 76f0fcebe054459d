"""Tasks of the DAG families: their params, their operators, and the specs that Airflow renders from a run's state.

    automl, comparison, fine_tune, own_script   tasks of one family
    end_to_end                                  tasks of `train_end_to_end`, some of which other families use
    shared                                      a run's state and addresses, its ledger, the closing report, the form

DAG files import from here and add id, schedule and owner. The package imports neither boto3 nor the Amazon provider.
"""
