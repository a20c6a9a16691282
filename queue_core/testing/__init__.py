"""Help for tests of handlers: a store for a test, a run of a handler, a clock, and crashes.

The names in `__all__` are public, as those of `queue_core` are.

May import every room. No room may import it.
"""

from queue_core.testing.crashing import crash_at
from queue_core.testing.handled import Handled
from queue_core.testing.handling import handle
from queue_core.testing.temporary import TemporaryStore, temporary_store

__all__ = ["Handled", "TemporaryStore", "crash_at", "handle", "temporary_store"]
