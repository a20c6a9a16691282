"""Settings of queues that read the log or the segments of another one, and of those that do not."""

from __future__ import annotations

from dataclasses import replace

from queue_core.errors import BadOption
from queue_core.values.settings import QueueSettings

#: Settings that a subscription cannot have: loads would have to decide, and none goes into it.
_OF_LOADS = ("log", "policy", "dedup", "fair_by", "max_size", "max_bytes")


def check_readable(settings: QueueSettings) -> None:
    """Raise `BadOption` for settings that a subscription cannot have."""
    for name in _OF_LOADS:
        if getattr(settings, name):
            raise BadOption(
                f"{name}: a subscription cannot have it, since no load goes into it; set it on the "
                "queue whose log it reads"
            )
    orders = settings.priority is not None or settings.group is not None
    if settings.late is not None and settings.when_late == "detach" and orders:
        raise BadOption(
            "when_late='detach': with priority or group, all messages are taken from the log "
            "before one is fired, so that detaching would free nothing; use when_late='drop'"
        )


def check_loadable(settings: QueueSettings) -> None:
    """Raise `BadOption` for settings that only a subscription can have."""
    for name in ("selector", "late"):
        if getattr(settings, name) is not None:
            raise BadOption(f"{name}: only a subscription can have it; see Store.subscribe")


def readable(settings: QueueSettings) -> QueueSettings:
    """Return settings without those that a copy of a queue cannot have, and without its budget."""
    plain = QueueSettings()
    return replace(settings, **{name: getattr(plain, name) for name in (*_OF_LOADS, "late")})
