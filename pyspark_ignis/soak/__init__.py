"""A soak: processes load and fire under faults, and a checker says what became of each message.

`soak.py` runs it on a store, as the command ``ignis soak`` does; `nemesis.py` makes the faults;
`workload.py` is what the processes do; `history.py` is what they write down; `checker.py` judges
that alone, without the store.
"""
