"""The log as lines of JSON."""

import json
import logging

from ignis_cli.logs import JsonLines


def test_a_line_has_the_fields_of_its_record():
    record = logging.makeLogRecord(
        {
            "name": "x",
            "levelname": "INFO",
            "msg": "a %s",
            "args": ("b",),
            "queue": "orders",
            "at": {1},
        }
    )
    line = json.loads(JsonLines().format(record))

    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "INFO",
        "logger": "x",
        "message": "a b",
        "queue": "orders",
        "at": "{1}",
    }
