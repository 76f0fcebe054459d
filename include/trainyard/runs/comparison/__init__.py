"""Comparison of parallelism strategies: one self-contained page, from the files that the trainings wrote.

    measures                        the measures in the files of one training
    record                          the record of all trainings
    findings                        conclusions from the record
    charts, figures, table, page    HTML of the record and the findings

It may import what `trainyard.runs` may.
"""
