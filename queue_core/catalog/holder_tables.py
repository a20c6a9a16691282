"""The tables of who takes messages: consumers and what they want, tickets, waiters, leases."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from queue_core.catalog.table_parts import Id, metadata, seal

#: Queries, pools and processes that take messages, by their names.
consumers = Table(
    "consumers",
    metadata,
    #: In slices and tickets of the consumer.
    Column("id", Id, primary_key=True, autoincrement=True),
    #: Chosen by the user, or made for a query, a pool or a process.
    Column("name", String(200), nullable=False, unique=True),
    #: Grows each time the consumer starts; older epochs are fenced off.
    Column("epoch", BigInteger, nullable=False),
    #: The number of the last ticket, or the last one of a block that its process has reserved.
    Column("last_ticket", BigInteger, nullable=False),
    #: The last ticket that is finished. A sweep takes messages that it still holds.
    Column("acknowledged", BigInteger, nullable=False),
    #: Its last heartbeat; null for a consumer without one. Sweeps, recoveries and
    #: claims read whether the consumer is alive from it.
    Column("heartbeat_at", BigInteger),
    #: When the name was first registered.
    Column("created_at", BigInteger, nullable=False),
    seal(),
    #: How a query finishes its messages: its option ``ack``; null for a consumer without a query.
    Column("ack", String(16)),
    #: False for a query whose checkpoint requests its messages again. After its death, they wait
    #: for its restart, and no sweep takes them. Null means true.
    Column("sweepable", Boolean),
    #: The machine that started its present life, for people; null: it is not known.
    Column("host", String(80)),
    #: The id of the process there.
    Column("pid", BigInteger),
    sqlite_autoincrement=True,
)

#: Consumers of queues that have a priority or a claim, and whether they want messages.
interests = Table(
    "interests",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("consumer_id", BigInteger, primary_key=True),
    #: The higher one goes first; null precedes all.
    Column("priority", Integer),
    #: ``shared``, ``exclusive``, ``single``, or ``none`` of a query that only shows itself.
    Column("claim", String(16), nullable=False),
    #: Whether it would take messages now.
    Column("interested", Boolean, nullable=False),
    #: When it was registered. Of two equal ones, the older goes first.
    Column("registered_at", BigInteger, nullable=False),
    seal(),
    Index("interests_of_consumer", "consumer_id"),
)

#: A ticket is one firing of one consumer. Those whose messages were handed out at once, as by
#: Python and pools, have no row.
tickets = Table(
    "tickets",
    metadata,
    Column("consumer_id", BigInteger, primary_key=True),
    #: From 1 for each consumer.
    Column("number", BigInteger, primary_key=True),
    #: When it was fired: the same time as in its slices. It names the trials of suspects.
    Column("fired_at", BigInteger, nullable=False),
    #: When its messages were first handed out; null if they were not,
    #: and then a recovery can put them back.
    Column("planned_at", BigInteger),
    #: How many epochs of the consumer got them.
    Column("lives", Integer, nullable=False, server_default="0"),
    #: The last epoch of the consumer that got them.
    Column("planned_epoch", BigInteger),
    #: A browser's ticket has ranges of places instead of slices: JSON.
    Column("browsed", Text),
    seal(),
)

#: Calls that wait for room in a queue, or for messages, in the order of their arrival.
waiters = Table(
    "waiters",
    metadata,
    #: The place in the line.
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    #: The verb that waits: ``load`` or ``fire``.
    Column("verb", String(8), nullable=False),
    #: When it joined the line.
    Column("joined_at", BigInteger, nullable=False),
    #: Until when it counts as alive, unless it is renewed.
    Column("alive_until", BigInteger, nullable=False),
    Index("waiters_in_order", "queue_id", "verb", "id"),
    # Otherwise, a new waiter could get the number of a former one, and overtake others.
    sqlite_autoincrement=True,
)

#: Roles that one instance at a time holds, until its lease ends.
leases = Table(
    "leases",
    metadata,
    #: The name of the role, such as the leader of side tasks.
    Column("role", String(64), primary_key=True),
    #: The instance that has it.
    Column("holder", String(200), nullable=False),
    #: Grows with each new holder, and if it had ended meanwhile.
    Column("term", BigInteger, nullable=False),
    #: When it ends, unless the holder renews it.
    Column("ends_at", BigInteger, nullable=False),
)
