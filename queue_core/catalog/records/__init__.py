"""What the catalog records beside messages: failures, schedules, publications, samples, keys.

May import `values` and the catalog's database. Must not change slices.
"""
