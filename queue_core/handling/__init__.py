"""Handlers and the outcomes they decide: the same for Spark and for any other process.

May import `selector`, `values` and `support`. Must not read or write a catalog.
"""
