"""Checks that the catalog, the storage and the clock are the right ones."""
