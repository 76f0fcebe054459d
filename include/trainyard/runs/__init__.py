"""The record of a run (report.json), its self-contained page (report.html), and what proves it.

    record      what is kept of a run, as frozen values; `from_json(to_json(record)) == record`
    builder     plain dicts (task instances, job snapshots, shard index, metric events) -> RunRecord
    continuity  training log and jobs -> what interruptions cost, and that no sample was lost
    verify      the same, worked out anew from the run's files; shares no code with `continuity`
    ledger      every paid thing that a run created, until its end was seen
    report      RunRecord -> one HTML page that opens offline; nothing it needs is outside the record

May import the floors below; knows neither Airflow nor AWS clients.
"""
