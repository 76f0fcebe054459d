"""The record of a run (report.json) and its self-contained page (report.html).

    record    what is kept of a run, as frozen values; `from_json(to_json(record)) == record`
    builder   plain dicts (task instances, job snapshots, the shard index, metric events) ->
    RunRecord report    RunRecord -> one HTML page that opens offline; nothing it needs is outside
    the record

May import the floors below; knows neither Airflow nor AWS clients.
"""
