"""Verbs that may wait: loops around the verbs that do not."""
