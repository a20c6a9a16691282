"""Segments: Arrow data written to and read from storage. Needs no catalog.

May import `values` and `support`. Must not know a catalog.
"""
