"""Selection: which messages a firing takes, and in which order.

`acquire` takes messages within a transaction. If the choice depends on columns, `candidates` finds
the messages before that: `fifo_scan` in order of loading, or `best_scan` by an order or a rank.
Both read slices through `scan`, which skips slices by their statistics.

May import `catalog` and what is below. Must not change slices, except to hand them to a ticket.
"""
