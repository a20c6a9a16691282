"""Handlers and the outcomes they decide: the same for Spark and for any other process."""
