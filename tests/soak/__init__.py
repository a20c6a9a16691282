"""A soak: processes load and fire under faults, and a checker decides the fate of each message.

`soak.py` runs it on a store. `nemesis.py` makes the faults,
`workload.py` is the work of the processes, and `history.py` their journal. `checker.py` judges only
the journals, without the store.
"""
