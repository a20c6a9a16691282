"""The errors of ignis, grouped by what the caller should do about them.

```
IgnisError
├── Invalid               fix the call; nothing was changed
│   ├── BadName           a queue, column or consumer name is not allowed
│   ├── BadOption         an option or setting is unknown or malformed
│   ├── BadSelector       a selector or an order cannot be parsed
│   ├── BadOutcome        a settlement has an unknown outcome or a foreign message
│   ├── NoSuchStore       there is no store at that address
│   ├── NoSuchQueue       the store has no queue of that name
│   ├── QueueExists       a queue of another shape has that name
│   ├── QueueDeactivated  the queue is deactivated, for good
│   │   └── SubscriptionDetached  the subscription gets nothing more from its log
│   ├── CatalogForbidden  the role of the database lacks a right
│   ├── StaleCheckpoint   the checkpoint of a query went back to an earlier state
│   ├── OffsetsLost       the log of a queue no longer has what a query wants to read
│   └── SchemaMismatch    rows or a schema do not fit the queue
├── Conflict              another process changed this first; read again, then retry
│   ├── ConsumerFenced    the same consumer was started again elsewhere
│   ├── QueueTaken        another consumer has the queue to itself
│   ├── NotLeading        another instance is the leader
│   └── PublicationRefused  a staged segment was removed before it was published
├── Unavailable           try again later
│   ├── CatalogUnavailable  the catalog cannot be reached or written
│   ├── StorageUnavailable  the storage cannot be reached or written
│   └── QueueFull         a bounded queue has no room
└── Damaged               stop and repair
    ├── DamagedSegment    a segment is missing, torn or altered
    ├── DamagedCatalog    the catalog cannot be read
    ├── DamagedBackup     a backup is incomplete or altered
    └── FormatTooNew      a newer ignis wrote the store
```
"""

import inspect


class IgnisError(Exception):
    """
    An ignis operation failed.

    The base of all errors that ignis raises. Each subclass belongs to one of four kinds, `Invalid`,
    `Conflict`, `Unavailable` and `Damaged`, which say what to do. Without a message of its own, an
    error shows the first line of its class's description.

    Attributes:
        outcome_unknown: True if the connection broke during a commit, so that the change may have
            been made. Read the state before you repeat the call. False (the usual value): nothing
            was changed.
    """

    outcome_unknown: bool = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (inspect.getdoc(type(self)) or "").partition("\n")[0])


class Invalid(IgnisError):
    """
    The call cannot be carried out as it stands.

    Nothing was changed, and a retry fails in the same way. Fix the call; the message says how.
    """


class BadName(Invalid):
    """
    A name is not allowed.

    Raised for the name of a queue, a column or a consumer that is empty, too long, reserved, used
    twice, or has a character that is not allowed. Choose another name; the message lists the
    characters that are allowed.
    """


class BadOption(Invalid):
    """
    An option, a setting or an argument is unknown or has an impossible value.

    Raised before anything happens, for all wrong options of a Spark source or sink at once. The
    message names each of them with its allowed values, and the nearest name if one is misspelt.
    """


class BadSelector(Invalid):
    """
    A selector or an order cannot be parsed or evaluated.

    Raised for a syntax error, an unknown column, a function that is not supported, or values that
    cannot be compared. The message quotes the text and marks the place.
    """


class BadOutcome(Invalid):
    """
    A settlement is malformed.

    Raised for an outcome other than delete, sideline or reload, for a message with two outcomes,
    and for an id that does not belong to the queue. Give each fired message exactly one outcome,
    with its id from ``_message_id``.
    """


class NoSuchStore(Invalid):
    """
    There is no ignis store at that address.

    Raised when a store is opened with ``create=False``, by Spark to read, or by a streaming sink
    after the first batch of its query. Correct the path or the catalog, bring the store back, or
    create it first: `Store.open` does so by default.
    """


class NoSuchQueue(Invalid):
    """
    The store has no such queue, or the queue was dropped.

    Correct the name, for which the message suggests the nearest one, or create the queue with
    `Store.create_queue`. If there is a new queue of that name, open it with `Store.queue`.
    """


class QueueExists(Invalid):
    """
    A queue of that name already exists.

    Raised by `Store.create_queue` without ``exist_ok=True``, and with it when the queue has other
    columns, shards or another key. Open the queue with `Store.queue`, or choose another name.
    """


class QueueDeactivated(Invalid):
    """
    The queue was deactivated.

    Its messages can be browsed, but it no longer loads or fires any, and cannot be activated again.
    Use another queue; the name becomes free when the queue is dropped.
    """


class SubscriptionDetached(QueueDeactivated):
    """
    The subscription is detached from the log that it read, and no message waits in it.

    It exceeded its budget, the setting ``late``, or a person detached it. A firing gives what
    waits, and then raises this, since it would wait in vain. `QueueAdmin.attach` lets the
    subscription read the log again.
    """


class CatalogForbidden(Invalid):
    """
    The role of the database lacks a right.

    Raised by a call whose statement PostgreSQL refuses to the role of the catalog's URL; the
    message names the table. Nothing was changed. Use another role, or give this one the right:
    ``ignis grants`` prints the statements.
    """


class StaleCheckpoint(Invalid):
    """
    The checkpoint of a streaming query went back to an earlier state.

    Raised by the sink when the queue has already recorded a batch of this number, with other rows
    of the same query: parts of the checkpoint were removed, or an older copy was put back. Nothing
    was changed. Restore the newest checkpoint, or remove its whole folder, including ``metadata``,
    so that the query starts as a new one. A write with ``txnAppId`` never raises it: it leaves
    rows of a used ``txnVersion`` out, with a warning.
    """


class OffsetsLost(Invalid):
    """
    The log of a queue no longer has what a query wants to read.

    Raised by a query that reads a log: messages were trimmed before it has read them, or the log is
    not the one that it has read before, because the queue was dropped and created anew, or the
    catalog was restored, failed over or is new. The message names the shard and the offsets, and
    says how to go on.
    """


class SchemaMismatch(Invalid):
    """
    Rows or a schema do not fit the queue.

    Raised for a column that the queue lacks, a required column or a key that is missing or null, a
    value that does not fit its type, a type that Spark does not support, and a column that cannot
    be the key. Change the rows, or add the column to the queue with `QueueAdmin.add_columns`.
    """


class Conflict(IgnisError):
    """
    Another process changed this first.

    Nothing was changed. Read the state again, and retry if the operation still makes sense.
    """


class ConsumerFenced(Conflict):
    """
    The same consumer was started again elsewhere, which ends this one.

    Raised when this process fires, settles or sends a heartbeat as a consumer that another process
    has started again. Stop this process, or give each process its own consumer name.
    """


class QueueTaken(Conflict):
    """
    Another consumer has the queue to itself.

    Raised when a consumer asks for exclusive use while other consumers are active, or for any use
    while another one is exclusive. Wait until that consumer ends, or consume another queue.
    """


class NotLeading(Conflict):
    """
    Another instance is the leader.

    Raised when this process runs a task that only the leader may run. Leave the task to the leader,
    or retry once this instance leads.
    """


class PublicationRefused(Conflict):
    """
    A staged segment was removed before it was published.

    Raised when a load takes longer than the grace period of vacuum, which then removes its files.
    Nothing was loaded: write the rows again, and make the grace period longer than any load.
    """


class Unavailable(IgnisError):
    """
    A part of the store cannot be used now.

    Try again later. The failed operation changed nothing, unless `outcome_unknown` is true: then
    read the state first.
    """


class CatalogUnavailable(Unavailable):
    """
    The catalog cannot be reached or written.

    Raised when the database is down, locked for too long, read-only, or out of connections. Check
    that it runs and can be reached from this machine, then try again.
    """


class StorageUnavailable(Unavailable):
    """
    The storage cannot be reached or written.

    Raised when a folder cannot be written, the disk is full, or the server of a bucket does not
    answer or refuses; also when the storage is not mounted, or belongs to another store. Check the
    path, the server and the credentials, then try again.
    """


class QueueFull(Unavailable):
    """
    The queue is bounded and has no room.

    Raised by a load that exceeds ``max_size`` or ``max_bytes``, at once or after a timeout, and by
    `Queue.request` when all buffers are in use. Fire messages, wait longer, or raise the bound.
    """

    #: Whether a load has waited for room, and may fit later.
    may_fit = False


class Damaged(IgnisError):
    """
    Stored data differs from the written data.

    Stop and repair it: a retry fails in the same way.
    """


class DamagedSegment(Damaged):
    """
    A segment is missing, torn or altered.

    Raised when messages are read. The messages of the segment are quarantined, and all others can
    still be fired. Restore the file from a backup, then run ``ignis repair``.
    """


class DamagedCatalog(Damaged):
    """
    The catalog cannot be read.

    Raised when the database lacks tables, is corrupt, or holds tables of another program; also when
    it is missing and the storage holds messages. Restore it from a backup, or use a separate
    database for ignis.
    """


class DamagedBackup(Damaged):
    """
    A backup is incomplete or altered.

    Raised when a file of a backup is missing, or differs from its checksum. Nothing was changed:
    restore from another backup.
    """


class FormatTooNew(Damaged):
    """
    A newer ignis wrote the store or the backup.

    Nothing is damaged: upgrade ignis in this process.
    """
