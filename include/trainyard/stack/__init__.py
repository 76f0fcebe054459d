"""The launcher: starts the local stack, follows one run, and leaves no process behind.

It drives processes, Airflow's REST API and the AWS endpoint as any user could; it imports none of
what it drives (only `trainyard.errors`), so a broken DAG or engine shows as a clear message here and
not as an import error.

    trainyard run [--conf file.json]   one run from start to report
    trainyard up | down                the same stack, left running
    trainyard engine                   the engine alone

Everything it writes is under one home (`.trainyard/` in the repository, or `TRAINYARD_HOME`), plus
the reports in `runs/<run_id>/`.
"""
