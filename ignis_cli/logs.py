"""The log of commands that run until a signal: lines of text, or of JSON with fields."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from ignis_cli.display import complain, visible

#: How a line of the log is written.
LogFormat = StrEnum("LogFormat", {"text": "text", "json": "json"})
#: What each record has; all else are fields of the line.
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """Writes each record as a line of JSON, with the fields that its message names."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Writes each record as a line, and further lines of its text so that no reason forges one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines."""
        return visible(super().format(record)).replace("\n", "\n  ")


def start(log_format: LogFormat) -> None:
    """Write the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    plain = TextLines("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if log_format is LogFormat.json else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def announce(text: str) -> None:
    """Say what runs: in the log if it is JSON, and to people otherwise."""
    if any(isinstance(each.formatter, JsonLines) for each in logging.root.handlers):
        logging.getLogger(__name__).info("%s", text)
    else:
        complain(text)
