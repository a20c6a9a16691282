"""Presence: consumers report to the catalog, and so to other consumers, that they are alive.

May import `catalog`, `values` and `support`. Must not take messages.
"""
