"""The record of a run (report.json), its self-contained page (report.html), and the calculations behind both.

    record      the record of a run as frozen values; `from_json(to_json(record)) == record`
    builder     builds the record from plain dicts: task instances, job snapshots, shard index,
                metric events
    continuity  the cost of interruptions, and proof that no sample was lost; both are calculated from the
                training log and the jobs
    ledger      every paid resource of a run; an entry is written before the resource is created, and
                settled when its end is observed
    report      one HTML page that opens offline and reads nothing but the record

May import packages of lower floors (see CONTRIBUTING.md), but neither Airflow nor AWS clients.
"""
