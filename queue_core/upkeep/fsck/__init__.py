"""The check of a store: it runs all of `catalog.checks`, and reports what they find.

May import `catalog` and `segments`. Must not know what is right: the checks do.
"""
