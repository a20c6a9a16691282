"""What the catalog records beside messages: failures, schedules, publications, samples, keys.

May import `values`, `catalog/slices` and the catalog's database. Only `retries.py` changes slices:
it notes when they are due.
"""
