"""Verbs that may wait: loops around the verbs that do not.

May import `verbs` and what is below. Must not hold a transaction while it waits.
"""
