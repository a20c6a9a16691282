"""`PeriodicThread`: its work is repeated, even after an error."""

import logging
import threading

from pyspark_ignis.periodic import PeriodicThread

LONG = 60.0


def test_a_periodic_thread_goes_on_after_any_error(caplog):
    calls, enough = [], threading.Event()

    def work():
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("gone")
        enough.set()

    thread = PeriodicThread("ticking", work, every=0.01, first=0.0)
    with caplog.at_level(logging.WARNING):
        thread.start()
        assert enough.wait(LONG)
        thread.stop()

    assert "ticking failed and continues: gone" in caplog.text
    assert len(calls) >= 2
    assert not [thread for thread in threading.enumerate() if thread.name == "ticking"]


def test_a_periodic_thread_does_nothing_before_its_time():
    calls = []
    thread = PeriodicThread("ticking", lambda: calls.append(1), every=LONG)
    thread.start()
    thread.stop()

    assert calls == []
