"""Presence: consumers report to the catalog, and so to other consumers, that they are alive."""
