"""Settings on the command line: ``NAME=VALUE`` with durations, lists of columns, and none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from queue_core.errors import BadOption
from queue_core.values.setting_texts import parse_setting


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Return values by the names of settings, from ``NAME=VALUE``; raises `BadOption`."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise BadOption(f"setting {pair!r}: write NAME=VALUE")
        try:
            # The queue refuses unknown settings, because it can suggest the nearest name.
            settings[name] = parse_setting(name, text)
        except ValueError as error:
            raise BadOption(f"{name}={text}: use {error}") from None
    return settings
