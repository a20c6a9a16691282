"""An outage has a line at its beginning, one a minute, and one at its end."""

import logging

from queue_core.support import outage_log
from queue_core.support.outage_log import OutageLog
from tests.clocks import Stopwatch


def test_it_has_few_lines_and_its_duration(caplog, monkeypatch):
    caplog.set_level("INFO")
    watch = Stopwatch(monkeypatch, outage_log)
    outage = OutageLog(logging.getLogger("x"), {"queue": "orders"})

    outage.over("works again")
    for _ in range(140):
        outage.failed("lost", "lost")
        watch.now += 1
    outage.failed("refused", "refused")
    outage.over("works again")
    outage.over("works again")
    outage.failed("lost")

    assert [record.getMessage() for record in caplog.records] == [
        "lost",
        "lost (for 60 s)",
        "lost (for 120 s)",
        "refused (for 140 s)",
        "works again after 140 s",
        "lost",
    ]
    assert {record.queue for record in caplog.records} == {"orders"}
    assert caplog.records[4].seconds == 140
