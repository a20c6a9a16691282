"""ignis beside other queues, in one run: ``python -m benchmarks.peers``, or ``make bench``.

`contenders` has one file for each peer, `workloads` one for each workload. `runner` lets the peers
take turns and writes each measurement as one line of JSON, so a run that was interrupted continues.
`report` makes the table from these lines, and `picture` the picture.
"""
