"""Write ignis_cli/index.json: what `ignis --help` shows of each command before it is imported."""

from __future__ import annotations

import json

from ignis_cli.invocation import INDEX
from scripts.cli_page import every_command

PAGE = INDEX


def page() -> str:
    """Return the module, the panel and the first paragraph of the help of each command."""
    lines = []
    for name, command in every_command().commands.items():
        module = command.callback.__module__.rpartition(".")[2]
        about = " ".join(command.help.partition("\n\n")[0].split())
        lines.append(
            f"  {json.dumps(name)}: {json.dumps([module, command.rich_help_panel, about])}"
        )
    return "{\n" + ",\n".join(lines) + "\n}\n"
