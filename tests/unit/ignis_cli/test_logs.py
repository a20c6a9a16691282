"""The log as lines of text, and of JSON."""

import json
import logging
import sys

from ignis_cli.logs import JsonLines, TextLines, announce


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


def test_no_reason_forges_a_line_of_text_or_steers_the_terminal():
    record = logging.makeLogRecord({"msg": "failed: %s", "args": ("\x1b[31mred\nWARNING forged",)})

    assert TextLines("> %(message)s").format(record) == "> failed: \\x1b[31mred\n  WARNING forged"


def test_what_runs_is_a_line_of_the_log_if_that_is_json(monkeypatch, capsys):
    handler = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    announce("working on orders")
    handler.setFormatter(JsonLines())
    announce("working on orders")

    plain, line = capsys.readouterr().err.splitlines()
    assert plain == "ignis: working on orders"
    assert json.loads(line)["message"] == "working on orders"
