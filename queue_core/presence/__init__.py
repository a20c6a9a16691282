"""Presence: how a consumer tells the catalog, and other consumers, that it is alive."""
