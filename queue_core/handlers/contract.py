"""The options of a handler in Python, checked before anything is started."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from queue_core.errors import BadOption
from queue_core.handlers.payload_types import reader_of
from queue_core.handlers.payloads import Payload
from queue_core.model import QueueInfo

Ignorable: TypeAlias = type[Exception] | Sequence[type[Exception]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """How a handler in Python is called, and which of its exceptions are ignored."""

    ignorable: tuple[type[Exception], ...] = ()
    #: Seconds that a call may take; None: the queues' setting.
    timeout: float | None = None
    payload: Payload | None = None

    @staticmethod
    def of(
        ignorable: Any = (),
        timeout: Any = None,
        payload: Any = None,
        payload_type: Any = None,
        with_metadata: bool = False,
    ) -> Contract:
        """Check the options; raises `BadOption`."""
        if payload is None and (payload_type is not None or with_metadata):
            raise BadOption(
                "payload_type and with_metadata need payload=, the column that holds the JSON text"
            )
        if payload is not None and not isinstance(payload, str):
            raise BadOption(f"payload={payload!r}: give the name of the column with the JSON text")
        read = None if payload_type is None else reader_of(payload_type)
        return Contract(
            ignorable=_classes(ignorable),
            timeout=_seconds(timeout),
            payload=None if payload is None else Payload(payload, read, bool(with_metadata)),
        )

    def timeout_for(self, queues: Sequence[QueueInfo]) -> float:
        """Return the seconds that a call for messages of *queues* may take; raises `BadOption`."""
        if self.timeout is None:
            return min(queue.settings.longest_handling for queue in queues)
        for queue in queues:
            half = queue.settings.sweep_after / 2
            if self.timeout > half:
                raise BadOption(
                    f"handler_timeout={self.timeout:g}: use at most {half:g} seconds, half of "
                    f"sweep_after of queue {queue.name!r}; a longer call may be swept while it runs"
                )
        return self.timeout


def _classes(ignorable: Any) -> tuple[type[Exception], ...]:
    classes = (ignorable,) if isinstance(ignorable, type) else tuple(ignorable)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise BadOption(f"ignorable: {each!r} is not a subclass of Exception")
    return classes


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:
        raise BadOption(f"handler_timeout={timeout!r}: use seconds, more than 0")
    return float(timeout)
