"""
Publications: the last batch of each streaming query, and the claim on the files of a load.

If the sink can read Spark's log, the record of a batch names the tickets whose messages the batch
has. If the tickets are of this catalog, the store is both source and target of the query. After a
restore, the record and the tickets are then compared (`newest_ticket`, `is_new_batch`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import Connection, select

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import decoding
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.record_tables import publications
from queue_core.catalog.records import restored
from queue_core.catalog.slices import segments
from queue_core.catalog.tables import queues, slices
from queue_core.errors import BadOption, Conflict, PublicationRefused, StaleCheckpoint
from queue_core.segments.storage import Storage
from queue_core.values.model import Batch, Consumer, Place, QueueInfo, Staged
from queue_core.values.names import is_of_query


def claim(connection: Connection, storage: Storage, staged: Iterable[Staged]) -> None:
    """Protect the files of staged segments from removal; raises `PublicationRefused`."""
    locations = [segment.location for segment in staged if segment.location is not None]
    if locations:
        segments.claim(connection, locations)
        check_there(storage, locations)


def check_there(storage: Storage, locations: Iterable[str]) -> None:
    """Raise `PublicationRefused` if vacuum has removed, and perhaps forgotten, staged files."""
    missing = storage.missing(locations)
    if missing:
        raise PublicationRefused(
            f"segment {min(missing)} was cleaned up before it was published; write the rows again"
        )


def is_new_batch(connection: Connection, queue: QueueInfo | Place, batch: Batch) -> bool:
    """
    Record the batch of a query; return False if it needs no work.

    A batch needs no work if it has no rows, or if it is the last batch again: Spark repeats only
    the last one. Raises `StaleCheckpoint` for another batch whose number was recorded, and
    `Conflict` for a batch that was read from this catalog before a restore.
    """
    restored.report_batches(connection, queue, batch)
    content = {"rows": batch.rows, "digest": _text(batch.digest)}
    content |= {"entry": batch.entry, "tickets": batch.tickets}
    row = {"queue_id": queue.id, "query_id": batch.query_id, "batch_id": batch.number}
    row |= {"content": json.dumps(content)}
    statement = dialect.insert_new(connection, publications).values(
        published_at=dialect.now(), **row
    )
    columns = ("batch_id", "published_at", "content", "seal")
    recorded = connection.execute(
        statement.on_conflict_do_update(
            index_elements=[publications.c.queue_id, publications.c.query_id],
            set_={name: statement.excluded[name] for name in columns},
            where=publications.c.batch_id < statement.excluded.batch_id,
        ).returning(publications.c.batch_id)
    )
    if recorded.first() is not None:
        _check_remembered(connection, queue, batch)
        return True
    _check_repeated(connection, queue, batch)
    return False


def is_new_load(connection: Connection, queue: QueueInfo | Place, batch: Batch) -> bool:
    """
    Do the same as `is_new_batch` for a batch that is loaded.

    Raises also `BadOption` for a batch that was already loaded into another queue.
    """
    is_new = is_new_batch(connection, queue, batch)
    if is_new and batch.rows:
        _check_elsewhere(connection, queue, batch)
    return is_new


def numbers(connection: Connection, query_id: str, names: Iterable[str]) -> list[int]:
    """Return the numbers of the last batches that some queues have of a query."""
    found = select(publications.c.batch_id).join(queues, publications.c.queue_id == queues.c.id)
    found = found.where(publications.c.query_id == query_id, dialect.one_of(queues.c.name, names))
    return sorted(set(connection.scalars(found)))


def newest_ticket(connection: Connection, name: str) -> int | None:
    """
    Return the newest ticket of the consumer *name* that a recorded batch names.

    None if no batch names one, because the query writes to another store or its log cannot be read.
    0 if its tickets were removed (`forget_tickets`), and the catalog was restored again since then.
    """
    if not is_of_query(name):
        # The store that a batch comes from may have a consumer of the same name.
        return None
    named = select(publications.c.query_id, publications.c.content).where(
        publications.c.content.contains(name, autoescape=True)
    )
    here = restored.fact(connection, restored.ADOPTED)
    found = []
    for row in connection.execute(named):
        with decoding(publications, f"query_id {row.query_id!r}"):
            record = json.loads(row.content)
            at, forgotten = _tickets(record["tickets"]), record.get("forgotten", {})
        if name in at:
            found.append(at[name])
        elif forgotten.get(name, here) != here:
            found.append(0)
    return max(found, default=None)


def doubted_before(connection: Connection, consumer: Consumer) -> int | None:
    """
    Return the time before which no record shows whether a consumer's tickets were published here.

    It is the time of the last restore, for a consumer without any acknowledged ticket and for one
    with a chosen name. Other consumers have a record if their sink writes to this catalog. None if
    there is no doubt.
    """
    restored_at = restored.restored_at(connection)
    if restored_at is None:
        return None
    here = select(consumers.c.acknowledged).where(consumers.c.id == consumer.id)
    is_first = not connection.scalar(here)
    return restored_at if is_first or not is_of_query(consumer.name) else None


def forget_tickets(connection: Connection, consumer: Consumer) -> None:
    """
    Remove the tickets of a consumer from all recorded batches.

    The record keeps the generation of the catalog, since a restore to this moment loses the next
    publication as well.
    """
    here = restored.fact(connection, restored.ADOPTED)
    named = publications.c.content.contains(consumer.name, autoescape=True)
    rows = connection.execute(
        select(publications.c.queue_id, publications.c.query_id, publications.c.content)
        .where(named)
        .order_by(publications.c.queue_id, publications.c.query_id)
        .with_for_update()
    )
    for row in rows.all():
        with decoding(publications, f"query_id {row.query_id!r} and queue_id {row.queue_id}"):
            content = json.loads(row.content)
            lines = (content["tickets"] or "").splitlines()
            others = [line for line in lines if json.loads(line)["consumer"] != consumer.name]
            content["tickets"] = "\n".join(others) or None
            content["forgotten"] = content.get("forgotten", {}) | {consumer.name: here}
        seals.change(
            connection,
            publications,
            publications.c.queue_id == row.queue_id,
            publications.c.query_id == row.query_id,
            content=json.dumps(content),
        )


def _check_remembered(connection: Connection, queue: QueueInfo | Place, batch: Batch) -> None:
    """Raise `Conflict` if the batch has messages of tickets that this catalog has forgotten."""
    for name, ticket in _tickets(batch.tickets).items():
        last = None
        if is_of_query(name):
            last = connection.scalar(
                select(consumers.c.last_ticket).where(consumers.c.name == name)
            )
        if last is not None and last < ticket:
            raise Conflict(
                f"queue {queue.name!r}: batch {batch.number} was read from ticket {ticket} of "
                f"consumer {name!r}, and the catalog, restored while the batch ran, does not know "
                "this ticket; nothing was changed: start the query again. It reads the messages "
                "that the catalog knows in a later batch"
            )


def _check_elsewhere(connection: Connection, queue: QueueInfo | Place, batch: Batch) -> None:
    """Raise `BadOption` if the query has published the batch to another queue."""
    others = (
        select(queues.c.name, publications.c.content)
        .select_from(publications)
        .outerjoin(queues, publications.c.queue_id == queues.c.id)
        .where(
            publications.c.queue_id != queue.id,
            publications.c.query_id == batch.query_id,
            publications.c.batch_id == batch.number,
        )
        .order_by(queues.c.name)
    )
    for other in connection.execute(others):
        with decoding(publications, f"query_id {batch.query_id!r} of queue {other.name!r}"):
            is_same = _is_same(other.content, batch)
        # Without further evidence, the number of rows alone refuses no batch.
        if is_same:
            where = "several queues" if other.name is None else f"queue {other.name!r}"
            option = "queueColumn" if other.name is None else f"queue={other.name!r}"
            raise BadOption(
                f"queue {queue.name!r}: batch {batch.number} of query {batch.query_id} was already "
                f"published to {where}, and Spark has not committed it; nothing was changed. Run "
                f"the query once more with the sink's option {option} and "
                "trigger(availableNow=True), which commits the batch. Then change the option"
            )


def _tickets(text: str | None) -> dict[str, int]:
    """Return the ticket of each consumer in an entry of Spark's log."""
    offsets = [json.loads(line) for line in (text or "").splitlines()]
    return {offset["consumer"]: int(offset["ticket"]) for offset in offsets}


def _check_repeated(connection: Connection, queue: QueueInfo | Place, batch: Batch) -> None:
    """Raise `StaleCheckpoint` unless the batch is the one that was recorded last."""
    last = connection.execute(
        select(publications.c.batch_id, publications.c.content).where(
            publications.c.queue_id == queue.id, publications.c.query_id == batch.query_id
        )
    ).one()
    with decoding(publications, f"query_id {batch.query_id!r} of queue {queue.name!r}"):
        is_same = _is_same(last.content, batch) is not False
        recorded = _tickets(json.loads(last.content)["tickets"])
    if not batch.rows and (not batch.tickets or recorded.keys() & _tickets(batch.tickets).keys()):
        # A checkpoint that lost its newest entries asks for its tickets again, which are empty by
        # now, until it has caught up. One that lost all of them has begun as another consumer.
        return
    if batch.number < last.batch_id:
        found = f"it has already recorded batch {last.batch_id} of the query"
    elif not is_same:
        found = "it has already recorded a batch of that number with other rows"
    else:
        return
    raise StaleCheckpoint(
        f"queue {queue.name!r}: batch {batch.number} of query {batch.query_id} has {batch.rows} "
        f"rows, and {found}, so the query's checkpoint went back to an earlier state; nothing was "
        "changed. Restore the newest copy of the checkpoint, or remove its whole folder, including "
        "metadata: the query then starts as a new one, and may load its last batch twice."
        f"{_release(connection, batch, recorded)}"
    )


def _release(connection: Connection, batch: Batch, recorded: Iterable[str]) -> str:
    """
    Return how to release what the refused checkpoint and the *recorded* consumers still hold.

    A checkpoint that lost its entries has begun as a new consumer, beside the recorded one.
    """
    names = sorted({name for name in (*_tickets(batch.tickets), *recorded) if is_of_query(name)})
    if not names:
        # The new query of a consumer with a chosen name takes them over.
        return ""
    of_them = dialect.one_of(consumers.c.name, names)
    found = connection.execute(select(consumers.c.name, consumers.c.id).where(of_them))
    here = {row.name: row.id for row in found}
    lines = []
    for name in names:
        # Consumers of another store, which the query reads, are unknown here.
        targets = ["QUEUE"] if name not in here else _queues_of(connection, here[name])
        lines += [f"`ignis sweep {target} --consumer {name}`" for target in targets]
    if not lines:
        return ""
    return (
        " If you remove it, messages of its last batches stay in flight: a minute after the query "
        f"has stopped, release them with {' and '.join(lines)}"
        f"{', for each QUEUE that the query reads,' if 'sweep QUEUE' in lines[-1] else ''}"
        " and load them again with `ignis shovel`. A sweep of a named consumer deletes messages "
        "that its query has published to this store, and sidelines the others"
    )


def _queues_of(connection: Connection, consumer_id: int) -> list[str]:
    """Return the names of the queues of which a consumer holds messages."""
    held = select(slices.c.queue_id).where(slices.c.consumer_id == consumer_id)
    names = select(queues.c.name).where(queues.c.id.in_(held)).order_by(queues.c.name)
    return list(connection.scalars(names))


def _is_same(recorded: str, batch: Batch) -> bool | None:
    """Return whether a batch is the recorded batch of its number; None if it may be."""
    content = json.loads(recorded)
    if content["entry"] is not None and batch.entry is not None:
        if content["entry"] == batch.entry:
            # Even if its values differ: a query may compute them at random.
            return True
        if batch.tickets is None or content["tickets"] != batch.tickets:
            return False
        # The batch was planned again from the same tickets.
    if content["digest"] is not None and batch.digest is not None:
        return (content["rows"], content["digest"]) == (batch.rows, _text(batch.digest))
    return None if content["rows"] == batch.rows else False


def _text(digest: int | None) -> str | None:
    return None if digest is None else f"{digest:016x}"
