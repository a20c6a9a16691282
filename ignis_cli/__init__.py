"""The command line `ignis`: inspect a store, change its queues, and run tasks by hand.

It imports no Spark, so that it starts at once and also works on machines without Spark. The modules
`commands_*` hold the commands, by the panel of ``ignis --help`` that shows them. A command is
imported when it is asked for; until then, ``index.json`` says what the help shows of it, which
`make docs` writes. This module imports nothing: `__main__` says what is missing before that is
imported.
"""

__all__: list[str] = []
