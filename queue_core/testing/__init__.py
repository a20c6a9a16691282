"""Help for tests of handlers: a store for a test, a run of a handler, a clock, and crashes.

The names in `__all__` are public, as those of `queue_core` are.

May import every room. No room may import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # `X as X` says that X is exported.
    from queue_core.testing.crashing import crash_at as crash_at
    from queue_core.testing.handled import Handled as Handled
    from queue_core.testing.handling import handle as handle
    from queue_core.testing.temporary import TemporaryStore as TemporaryStore
    from queue_core.testing.temporary import temporary_store as temporary_store

#: The module that defines each public name.
_HOMES = {
    "Handled": "queue_core.testing.handled",
    "TemporaryStore": "queue_core.testing.temporary",
    "crash_at": "queue_core.testing.crashing",
    "handle": "queue_core.testing.handling",
    "temporary_store": "queue_core.testing.temporary",
}

if not TYPE_CHECKING:  # which would take only names that it can read here
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'queue_core.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
