"""The command line `ignis`: inspect a store, change its queues, and run tasks by hand.

It imports no Spark, so that it starts at once and also works on machines without Spark. The modules
`commands_*` hold the commands, by the panel of ``ignis --help`` that shows them.
"""

from ignis_cli import (  # noqa: F401 - each adds its commands
    commands_by_hand,
    commands_change,
    commands_console,
    commands_inspect,
    commands_maintain,
    commands_metrics,
    commands_operate,
    commands_samples,
    commands_shovel,
    commands_switch,
    commands_work,
)
from ignis_cli.app import app

__all__ = ["app"]
