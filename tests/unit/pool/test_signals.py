"""`asked_to_end`: the first signal asks, and the handlers before are there again afterwards."""

import os
import signal
import threading

import pytest

from queue_core.errors import BadOption
from queue_core.pool.signals import asked_to_end
from tests.waiting import PATIENCE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_once(number):
    before = signal.getsignal(number)

    with asked_to_end() as asked:
        assert signal.getsignal(number) is not before
        os.kill(os.getpid(), number)
        assert asked.wait(PATIENCE)
        assert signal.getsignal(number) is before


def test_without_a_signal_nothing_is_asked():
    before = signal.getsignal(signal.SIGTERM)

    with asked_to_end() as asked:
        pass

    assert not asked.is_set()
    assert signal.getsignal(signal.SIGTERM) is before


def test_only_the_main_thread_gets_signals():
    errors = []

    def ask() -> None:
        with pytest.raises(BadOption) as refusal, asked_to_end():
            pass
        errors.append(str(refusal.value))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()

    assert errors == ["run() waits for signals, which only the main thread gets: use start()"]
