"""All commands: the app of `ignis_cli.app`, once each module of commands has added its own."""

from ignis_cli import (  # noqa: F401 - each adds its commands
    commands_by_hand,
    commands_change,
    commands_console,
    commands_inspect,
    commands_maintain,
    commands_operate,
    commands_shovel,
    commands_work,
)
from ignis_cli.app import app as app
