"""Selection: which messages a firing takes, and in which order.

`acquire` takes messages within a transaction. If columns decide which, `candidates` looks for them
beforehand: `fifo_scan` in order of loading, `top_k` by an order; both read slices through `scan`,
which skips those that their statistics decide.
"""
