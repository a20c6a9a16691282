"""`ConsumerPool`: worker threads of one process that handle messages of queues.

Reading order: `pool` (the face), `config`, `life`, `worker`, `batch`; `source` with `prefetch`, and
`outcome_buffer`, make it fast.

May import every room but `testing`. Must not build SQL: its members use verbs.
"""
