"""Wait for a signal to end, in a process that does nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from queue_core.errors import BadOption

#: What an operator, a supervisor or a terminal sends.
_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def asked_to_end() -> Iterator[threading.Event]:
    """
    Give an event that the first SIGTERM or SIGINT within the block sets; a second acts as usual.

    Raises `BadOption` outside of the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise BadOption("run() waits for signals, which only the main thread gets: use start()")
    asked = threading.Event()

    def ask(_: int, __: FrameType | None) -> None:
        restore()
        asked.set()

    before = {number: signal.signal(number, ask) for number in _ENDING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield asked
    finally:
        restore()
