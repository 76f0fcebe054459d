"""The launcher: starts the local stack, follows one run, and leaves no process behind.

It uses processes, Airflow's REST API and the AWS endpoint like any user. It imports neither Airflow nor the engine nor
DAG code, so a fault in one of them gives a clear message instead of an import error.

    trainyard run [--conf file.json]   one run from start to report
    trainyard up | down                the same stack, left running
    trainyard engine                   the engine alone

All files are in one folder, the home (`.trainyard/` in the repository, or `TRAINYARD_HOME`), except the reports in
`runs/<run_id>/`.
"""
