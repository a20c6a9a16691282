"""What can go wrong, grouped by what the caller should do about it.

```
IgnisError
├── Invalid               fix the call; nothing was changed
│   ├── BadName           a queue, column or consumer name that is not allowed
│   ├── BadOption         an unknown, misspelt or malformed option or setting
│   ├── BadSelector       a selector or order that cannot be understood
│   ├── BadOutcome        a settlement that names no known outcome, or a foreign message
│   ├── NoSuchStore       there is no store at that path
│   ├── NoSuchQueue       the store has no queue of that name
│   ├── QueueExists       the name is taken by a queue of another shape
│   ├── QueueDeactivated  the queue was given up, which cannot be undone
│   └── SchemaMismatch    rows that do not fit the queue's schema
├── Conflict              somebody else was faster; read again, then retry
│   ├── ConsumerFenced    the same consumer was started again elsewhere
│   ├── QueueTaken        another consumer has the queue to itself
│   ├── NotLeading        another instance is the leader
│   └── PublicationRefused  what was staged has been cleaned up meanwhile
├── Unavailable           try again later
│   ├── CatalogUnavailable
│   ├── StorageUnavailable
│   └── QueueFull         a bounded queue has no room
└── Damaged               stop and repair
    ├── DamagedSegment    a segment is missing, torn or altered
    ├── DamagedCatalog    the catalog cannot be read
    └── FormatTooNew      the store was written by a newer ignis
```
"""

import inspect


class IgnisError(Exception):
    """An ignis operation failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.getdoc(type(self)))


class Invalid(IgnisError):
    """The call cannot be carried out as it stands; nothing was changed."""


class BadName(Invalid):
    """A name is not allowed."""


class BadOption(Invalid):
    """An option is unknown or its value makes no sense."""


class BadSelector(Invalid):
    """A selector or an order cannot be understood."""


class BadOutcome(Invalid):
    """A settlement is malformed."""


class NoSuchStore(Invalid):
    """There is no ignis store there."""


class NoSuchQueue(Invalid):
    """The store has no such queue."""


class QueueExists(Invalid):
    """A queue of that name exists already, with another shape."""


class QueueDeactivated(Invalid):
    """The queue was given up: it can be looked at, and takes and gives nothing any more."""


class SchemaMismatch(Invalid):
    """The rows do not fit the queue's schema."""


class Conflict(IgnisError):
    """Somebody else was faster; read again and retry."""


class ConsumerFenced(Conflict):
    """The same consumer was started again elsewhere, which ends this one."""


class QueueTaken(Conflict):
    """Another consumer has the queue to itself."""


class NotLeading(Conflict):
    """Another instance is the leader; it does the work."""


class PublicationRefused(Conflict):
    """A staged segment was cleaned up before it was published; write the rows again."""


class Unavailable(IgnisError):
    """A part of the store cannot be reached now; try again later."""


class CatalogUnavailable(Unavailable):
    """The catalog cannot be reached or written."""


class StorageUnavailable(Unavailable):
    """The storage cannot be reached or written."""


class QueueFull(Unavailable):
    """The queue is bounded and has no room."""


class Damaged(IgnisError):
    """Something stored is not what was written; stop and repair."""


class DamagedSegment(Damaged):
    """A segment is missing, torn or altered."""


class DamagedCatalog(Damaged):
    """The catalog cannot be read."""


class FormatTooNew(Damaged):
    """The store was written by a newer ignis; upgrade this one."""
