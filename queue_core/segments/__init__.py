"""Segments: Arrow data written to and read from storage. Needs no catalog."""
