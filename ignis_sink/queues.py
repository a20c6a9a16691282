"""The stores and queues of a sink, and checks of its options against them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ignis_sink.options import SETTINGS, SinkOptions
from queue_core.errors import BadOption
from queue_core.values.address import Address
from queue_core.values.model import QueueInfo

if TYPE_CHECKING:
    from queue_core.store import Store


def known_store(address: Address) -> Store:
    """Return an existing store, opened once by a process that plans and commits many batches."""
    store = _opened(address)
    if store.catalog.is_replaced():
        # Maybe another store was made in its place since.
        _opened.cache_clear()
        store = _opened(address)
    return store


@lru_cache(maxsize=8)
def _opened(address: Address) -> Store:
    return open_store(address, create=False)


def open_store(address: Address, *, create: bool) -> Store:
    """Open a store."""
    # Not at the top: executors import this package and need no SQL library.
    from queue_core.store import Store

    # The tasks of a first write stage segments before the store exists.
    return Store(address, create=create, leftovers=create)


def check_queue(info: QueueInfo, options: SinkOptions) -> None:
    """Raise `BadOption` unless a write with these options may load this queue."""
    if options.queue != info.name:
        raise BadOption(
            f"queue={options.queue!r} is the sideline of queue {info.name!r}; messages are loaded "
            f"into main: write queue={info.name!r}"
        )
    if info.settings.is_rendezvous:
        raise BadOption(
            f"queue {info.name!r} is a rendezvous (max_size=0): a load waits until its messages "
            "are fired, which the commit of a batch cannot do; load from Python, or change the "
            "queue's max_size"
        )
    for option in ("policy", "dedup"):
        chosen, own = getattr(options, option), getattr(info.settings, option)
        if chosen and own and chosen != own:
            raise BadOption(
                f"{option}={chosen!r}: queue {info.name!r} has {option} = {own!r}, which holds for "
                "all loads; leave the option out, or change the queue's setting"
            )
    unlike = info.settings.unlike(options.settings)
    for option, setting in SETTINGS.items():
        given, actual = options.settings.get(setting), getattr(info.settings, setting)
        if setting in unlike:
            raise BadOption(
                f"{option}={given!r}: queue {info.name!r} has {setting} = {actual!r}; leave the "
                "option out, or change the queue's setting"
            )
