"""Write docs/cli.md from the commands of `ignis`, as typer knows them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typer.main import get_command

from ignis_cli.app import app

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

_HEAD = """# Command line

Generated from the commands of `ignis` by `make docs`; `ignis --help` and `ignis COMMAND --help`
show the same. The command line needs no Spark. Times are seconds, or a number with a unit: `90s`,
`20m`, `2h`, `1d`. On a terminal, long work shows its progress.

## Exit codes

| code | meaning |
|---|---|
| 0 | The command succeeded, with `--all` even if there was no message to change. |
| 1 | You gave no yes, nothing matched, a check found something, a job failed, or a pipe closed. |
| 2 | An error, such as a wrong option: one red line on standard error. |
| 130 | Ctrl-C. `work`, `console`, `metrics` and `top` end in order instead, with 0. |

Ctrl-C ends work on many messages between two transactions, and the command says how many are done;
pressed again, it ends the work at once. If `ignis fire` cannot print its messages, it removes none,
says how many are in flight, and ends with 2.

## JSON

With `--json`, a command prints one object per line. Binary values are texts in base64, as in the
API of [the console](console.md) and in Spark; `ignis load` and `ignis edit --set` read them in the
same form. Times are texts in ISO 8601, and intervals seconds. Decimal numbers are texts, and so are
`NaN`, `Infinity` and `-Infinity`. An error is one too, on standard error:
`{"error": "NoSuchQueue", "message": "…"}`.

## Tables

On a terminal, a table shows as many columns as fit, the most important ones first, and says which
it leaves out. In a pipe or a file it is TSV: a line of names, and a line for each row, with plain
numbers, seconds for ages, ISO 8601 for times, and `\\t` and `\\n` for tabs and line ends in texts.
With `NO_COLOR`, tables, sentences and help have no codes for the terminal; `ignis top` and the
progress of long work still move the cursor.

## Completion

`ignis --install-completion` lets the shell complete commands, options, and names of queues,
consumers, jobs and settings. For the names, the store is that of the command line, or of
`IGNIS_PATH`, or of `IGNIS_CATALOG` and `IGNIS_STORAGE`.

"""


def page() -> str:
    """Return the whole page."""
    group = every_command()
    panels: dict[str, list[Any]] = {}
    for command in group.commands.values():
        panels.setdefault(command.rich_help_panel, []).append(command)
    parts = ["## Options of every command\n", _table(group.params)]
    for panel, commands in panels.items():
        parts.append(f"## {panel}\n")
        for command in commands:
            parts += [f"### `{_usage(command)}`\n", f"{command.help}\n"]
            if command.params:
                parts.append(_table(command.params))
    return _HEAD + "\n".join(parts)


def every_command() -> Any:
    """Return the group of all commands."""
    group: Any = get_command(app)
    group.load()
    return group


def _usage(command: Any) -> str:
    arguments = [_name(each) for each in command.params if each.param_type_name == "argument"]
    return " ".join(["ignis", command.name, *arguments])


def _table(parameters: Iterable[Any]) -> str:
    rows = [
        f"| `{_name(each)}` | {_shown(each)} | {_text(each)} |"
        for each in parameters
        if each.name != "help"
    ]
    return "\n".join(["| | default | what it does |", "|---|---|---|", *rows, ""])


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        return name if parameter.required or name.startswith("[") else f"[{name}]"
    names = ", ".join(parameter.opts)
    return names if parameter.is_flag else f"{names} {parameter.metavar or 'VALUE'}"


def _shown(parameter: Any) -> str:
    if parameter.required:
        return "required"
    return "" if parameter.default in (None, False, []) else f"`{parameter.default}`"


def _text(parameter: Any) -> str:
    return str(parameter.help or "").replace("|", "\\|")
