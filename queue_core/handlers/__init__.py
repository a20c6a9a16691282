"""Handlers, and what becomes of messages by them: the same for Spark and for any process."""
