"""Slices in the catalog: what moves, the changes of a verb, segments, and the locks of shards.

May import `values` and the rest of the catalog. Must not decide which messages a verb takes.
"""
