"""The comparison of strategies: one self-contained page, from what the trainings themselves wrote.

May import what `trainyard.runs` may. `measures` reads one training's files, `record` is what is known of all of them,
`findings` what follows from it, `charts` and `page` show it. Pure.
"""
