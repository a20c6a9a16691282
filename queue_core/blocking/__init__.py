"""Blocking: the verbs that may wait, as loops around the verbs that do not."""
