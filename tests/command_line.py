"""Run `ignis` in the process of a test, and read its answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from typer.testing import CliRunner, Result

from ignis_cli.app import app
from queue_core.values.address import Address

Ignis = Callable[..., Result]


def runner(address: Address) -> Ignis:
    """Return what runs `ignis` on a store."""
    where = ["--catalog", address.catalog, "--storage", address.storage]

    def run(*args: object, input: str | None = None) -> Result:
        result = CliRunner().invoke(app, [*where, *map(str, args)], input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


def answer(result: Result) -> list[dict[str, Any]]:
    """Return the JSON output of a command that succeeded."""
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def refusal(result: Result) -> str:
    """Return the line of an error, in words or in JSON; there is no other output."""
    assert result.exit_code == 2
    assert result.stdout == ""
    if result.stderr.startswith("{"):
        said = json.loads(result.stderr)
        assert sorted(said) == ["error", "message"]
        return f"ignis: {said['message']}"
    assert result.stderr.startswith("ignis: ")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr
