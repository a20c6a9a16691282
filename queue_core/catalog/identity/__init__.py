"""Checks that the catalog, the storage and the clock are the right ones.

May import `segments`, `values` and the rest of the catalog. Must not change messages.
"""
