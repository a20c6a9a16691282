"""The command line `ignis`: inspect a store, change its queues, and run tasks by hand.

It imports no Spark, so that it starts at once and also works on machines without Spark. The modules
`commands_*` hold the commands, by the panel of ``ignis --help`` that shows them. A command is
imported when it is run; until then, its help comes from ``index.json``, which `make docs` writes.
This module imports nothing, so that `__main__` can say which libraries are missing.
"""

__all__: list[str] = []
