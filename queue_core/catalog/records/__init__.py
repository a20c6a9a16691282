"""What the catalog records beside messages: failures, schedules, publications, samples, keys.

May import `handling`, `values` and the rest of the catalog. Must not change slices; only
`retries.py` does, since it notes when they are due.
"""
