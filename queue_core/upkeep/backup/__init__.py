"""Backup and restore: the tables of a catalog as Arrow files, and copies of its segments.

May import `verbs` and what is below. Must not fire or settle messages.
"""
