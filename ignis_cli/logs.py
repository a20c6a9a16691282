"""The log of commands that run until a signal: lines of text, or of JSON with fields."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

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


def start(log_format: LogFormat) -> None:
    """Write the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if log_format is LogFormat.json else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
