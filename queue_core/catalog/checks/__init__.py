"""What holds in every state of the catalog, how each row is checked for it, and repairs.

May import `segments` and the catalog's database. Must not run by itself: `upkeep.tasks.fsck` does
that.
"""
