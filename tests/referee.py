"""The referee: decide the fate of each message, from the history alone.

It knows only the promises of ignis. A message whose load returned must be delivered until it is
settled. A message whose deletion returned must not be delivered again. A message is delivered twice
only for a reason that the history shows: its consumer reloaded it, died, or could not settle it
because of a fault until it was swept. A restore of the catalog excuses only what it undid:
transactions that ended after the copy was taken and began before the copy was put back. An excuse
allows a second copy of a message, under another id, and not a second delivery of one copy.

A history is a list of entries, each with its time and the life of its process. Actions have two
entries: an intent, and later an outcome. Without an outcome the action may have happened. The soak
and the simulation write such histories.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: An entry of a history.
Entry = dict[str, Any]
#: Numbers of one producer: its life is in the bits above.
NUMBERS_BITS = 24
#: The time of the end of an action that never ended.
NEVER = 1e18
#: How many offending messages of each kind are named.
_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The promises of the queues of a soak."""

    #: Seconds after its firing at which a message may be swept.
    sweep_after: float
    #: Queues whose messages come in the order of their numbers, key by key.
    ordered: frozenset[str] = frozenset()
    #: Queues in which a message replaces those of its key that wait.
    replacing: frozenset[str] = frozenset()
    #: Queues in which at most one message of a key is in flight.
    grouped: frozenset[str] = frozenset()
    #: Queues that are copied to others, and the other.
    copied: Mapping[str, str] = field(default_factory=dict)
    #: Queues that read the log of another one, the other, and the condition on what they get.
    reading: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(kw_only=True)
class Counts:
    """The numbers of messages of a queue by their fate."""

    #: A load was begun.
    attempted: int = 0
    #: A load returned.
    acknowledged: int = 0
    #: Handed out at least once.
    delivered: int = 0
    #: Acknowledged, and never deleted.
    lost: int = 0
    #: Handed out although no load of it was begun, or it was refused for certain, or it is altered.
    unexpected: int = 0
    #: Handed out again without a reason, or under a second id.
    duplicated: int = 0
    #: Handed out before an earlier message of its key, without a fault.
    disordered: int = 0
    #: In flight beside another message of its group.
    together: int = 0
    #: Handed out although its load did not return.
    recovered: int = 0
    #: Refused for certain.
    refused: int = 0
    #: Replaced by a newer message of its key.
    replaced: int = 0
    #: Acknowledged, and undone by a restore.
    undone: int = 0
    #: Handed out again, for a reason that the history shows.
    again: int = 0

    @property
    def right(self) -> bool:
        """Whether every promise was kept."""
        return not (
            self.lost or self.unexpected or self.duplicated or self.disordered or self.together
        )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of a soak."""

    queues: dict[str, Counts]
    #: How often a message was handed out again, by the reason.
    reasons: dict[str, int]
    #: Offending messages: their fate, queue and number.
    offenders: list[tuple[str, str, int]]
    #: Samples in which a bounded queue had more messages than its bound.
    overfull: int

    @property
    def right(self) -> bool:
        """Whether every promise was kept."""
        return not self.overfull and all(counts.right for counts in self.queues.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {"right": self.right, **asdict(self)}


def check(entries: Iterable[Entry], rules: Rules) -> Verdict:
    """Judge a history."""
    database = _ledger(entries)
    try:
        return _judge(database, rules)
    finally:
        database.close()


def _judge(database: sqlite3.Connection, rules: Rules) -> Verdict:
    database.execute("CREATE TABLE rules (kind, queue)")
    for kind in ("ordered", "replacing", "grouped"):
        names = [(kind, name) for name in sorted(getattr(rules, kind))]
        database.executemany("INSERT INTO rules VALUES (?, ?)", names)
    database.executescript(_INDEXES)
    for name, (other, condition) in rules.reading.items():
        database.execute(f"{_READ} AND ({condition})", (name, other))
    for name, other in rules.copied.items():
        database.execute("UPDATE attempts SET queue = ? WHERE queue = ?", (other, name))
    database.executescript(_MESSAGES)
    database.execute(_PAIRS, {"sweep_after": rules.sweep_after, "never": NEVER})
    database.execute(_DISORDERED)
    database.execute(_TOGETHER, {"sweep_after": rules.sweep_after})
    queues: dict[str, Counts] = {}
    offenders = []
    for query, fate in _FATES:
        for queue, number in database.execute(query):
            counts = queues.setdefault(queue, Counts())
            setattr(counts, fate, getattr(counts, fate) + 1)
            if fate in _WRONG and getattr(counts, fate) <= _NAMED:
                offenders.append((fate, queue, number))
    reasons = dict(database.execute(_REASONS))
    (overfull,) = database.execute("SELECT count(*) FROM sizes WHERE size > bound").fetchone()
    return Verdict(
        queues=dict(sorted(queues.items())),
        reasons=reasons,
        offenders=offenders,
        overfull=overfull,
    )


_TABLES = """
CREATE TABLE attempts (queue, number INTEGER, key, store, begun REAL, ended REAL, status);
CREATE TABLE copies (number INTEGER, store, begun REAL, ended REAL);
CREATE TABLE excuses (number INTEGER, why);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY, queue, number INTEGER, message INTEGER, life, begun REAL, at REAL,
    fired INTEGER, attempt INTEGER, altered INTEGER, key
);
CREATE TABLE settles (queue, number INTEGER, life, outcome, begun REAL, ended REAL, status);
CREATE TABLE lives (life, begun REAL, ended REAL);
CREATE TABLE faults (name, begun REAL, ended REAL, life);
CREATE TABLE restores (store, copied REAL, begun REAL, ended REAL);
CREATE TABLE sizes (queue, size INTEGER, bound INTEGER);
CREATE TABLE errors (life, kind, at REAL);
"""
_READ = """
INSERT INTO attempts SELECT ?, number, key, store, begun, ended, status FROM attempts
WHERE queue = ?
"""
_INDEXES = """
CREATE INDEX a ON attempts (queue, number);
CREATE INDEX k ON attempts (queue, key, number);
CREATE INDEX d ON deliveries (queue, number, at);
CREATE INDEX s ON settles (queue, number);
CREATE INDEX c ON copies (number);
CREATE INDEX l ON lives (life);
CREATE INDEX f ON faults (begun);
"""


def key_of(number: int, keys: int) -> str:
    """Return the key of a message; each producer has keys of its own."""
    return f"{number >> NUMBERS_BITS}/{number % keys}"


# A transaction between `begun` and `ended` may be undone by a restore whose copy was taken before
# the transaction had ended for certain, and put back after it had begun.
_MESSAGES = """
CREATE TABLE messages AS
SELECT *, EXISTS (
    SELECT 1 FROM restores AS r
    WHERE r.store IS m.store AND r.copied <= m.acknowledged AND r.ended >= m.begun
) OR EXISTS (
    SELECT 1 FROM restores AS r JOIN copies AS c ON c.number = m.number AND c.store IS NOT m.store
    WHERE r.store IS c.store AND r.copied <= c.ended AND r.ended >= c.begun
) AS undone
FROM (
    SELECT queue, number, key, store, min(begun) AS begun,
        min(ended) FILTER (WHERE status = 'loaded') AS acknowledged,
        count(*) = count(*) FILTER (WHERE status = 'refused') AS refused
    FROM attempts GROUP BY queue, number
) AS m;
CREATE UNIQUE INDEX m ON messages (queue, number);
CREATE INDEX mk ON messages (queue, key, number);

CREATE TABLE firsts AS
SELECT queue, number, min(at) AS at, count(DISTINCT message) AS ids FROM deliveries
GROUP BY queue, number;
CREATE UNIQUE INDEX first ON firsts (queue, number);

CREATE TABLE finished AS
SELECT DISTINCT queue, number FROM settles WHERE outcome = 'delete';
CREATE UNIQUE INDEX last ON finished (queue, number);

CREATE TABLE missing AS
SELECT m.queue, m.number, CASE
    WHEN EXISTS (SELECT 1 FROM rules WHERE kind = 'replacing' AND queue = m.queue) AND EXISTS (
        SELECT 1 FROM messages AS n
        LEFT JOIN firsts AS f ON f.queue = n.queue AND f.number = n.number
        WHERE n.queue = m.queue AND n.key = m.key AND n.number > m.number
        AND (f.at IS NOT NULL OR (n.acknowledged IS NOT NULL AND NOT n.undone))
    ) THEN 'replaced'
    WHEN m.undone THEN 'undone'
    ELSE 'lost' END AS fate
FROM messages AS m LEFT JOIN finished AS f ON f.queue = m.queue AND f.number = m.number
WHERE m.acknowledged IS NOT NULL AND f.number IS NULL;

CREATE TABLE held AS
SELECT d.queue, d.number, d.key, d.life, d.begun, d.at, (
    SELECT min(s.begun) FROM settles AS s
    WHERE s.queue = d.queue AND s.number = d.number AND s.life = d.life AND s.begun >= d.at
) AS settled
FROM deliveries AS d JOIN rules AS r ON r.kind = 'grouped' AND r.queue = d.queue;
CREATE INDEX h ON held (queue, key, at);
"""

# Each delivery after the first of its message, the one before it, and why it came.
_PAIRS = """
CREATE TABLE pairs AS
WITH twice AS (
    SELECT queue, number, message, begun, deliveries.at AS at, ids,
        lag(message) OVER one AS message_before, lag(life) OVER one AS life_before,
        lag(begun) OVER one AS begun_before,
        lag(deliveries.at) OVER one AS at_before
    FROM deliveries JOIN firsts USING (queue, number)
    WINDOW one AS (PARTITION BY queue, number ORDER BY deliveries.at, id)
)
SELECT queue, number, CASE
    WHEN ids > 1 AND number IN (SELECT number FROM excuses) THEN (
        SELECT why FROM excuses AS e WHERE e.number = p.number
    )
    WHEN ids > 1 AND EXISTS (
        SELECT 1 FROM restores AS r JOIN copies AS c ON c.number = p.number
        WHERE r.copied <= c.ended AND r.ended >= c.begun AND r.begun <= p.at
    ) THEN 'copied again'
    WHEN message <> message_before AND NOT EXISTS (
        SELECT 1 FROM restores AS r
        WHERE r.copied <= p.at_before AND r.ended >= p.begun_before AND r.begun <= p.at
    ) THEN NULL
    WHEN EXISTS (
        SELECT 1 FROM settles AS s
        WHERE s.queue = p.queue AND s.number = p.number AND s.outcome = 'delete'
        AND s.status = 'done' AND s.ended < p.begun AND NOT EXISTS (
            SELECT 1 FROM restores AS r
            WHERE r.copied <= s.ended AND r.ended >= s.begun AND r.begun <= p.at
        )
    ) THEN NULL
    WHEN EXISTS (
        SELECT 1 FROM settles AS s
        WHERE s.queue = p.queue AND s.number = p.number AND s.life = p.life_before
        AND s.outcome <> 'delete' AND s.begun BETWEEN p.begun_before AND p.at
    ) THEN 'given back'
    WHEN EXISTS (
        SELECT 1 FROM restores AS r
        WHERE r.copied <= p.at_before AND r.ended >= p.begun_before AND r.begun <= p.at
    ) OR EXISTS (
        SELECT 1 FROM restores AS r JOIN settles AS s
        ON s.queue = p.queue AND s.number = p.number AND s.life = p.life_before
        WHERE s.begun BETWEEN p.begun_before AND p.at AND r.copied <= coalesce(s.ended, :never)
        AND r.ended >= s.begun AND r.begun <= p.at
    ) THEN 'restore'
    WHEN EXISTS (
        SELECT 1 FROM lives AS l
        WHERE l.life = p.life_before AND l.begun <= p.at AND l.ended >= p.begun_before
    ) THEN 'its process died'
    WHEN EXISTS (
        SELECT 1 FROM faults AS f
        WHERE f.name = 'clock back' AND f.begun <= p.at AND f.ended >= p.begun_before
    ) THEN 'clock back'
    WHEN p.at - p.begun_before >= :sweep_after THEN (
        SELECT coalesce(max(name) FILTER (WHERE f.life = p.life_before), max(name))
        FROM faults AS f WHERE f.begun <= p.at AND f.ended >= p.begun_before
    )
    END AS reason
FROM twice AS p WHERE begun_before IS NOT NULL
"""

_REASONS = "SELECT reason, count(*) FROM pairs WHERE reason NOT NULL GROUP BY 1 ORDER BY 2 DESC"

# A message that waited through a fault may have been fired by a process that never said so.
_DISORDERED = """
CREATE TABLE disordered AS
WITH fired AS (
    SELECT d.queue, d.number, d.key, d.fired, d.at, m.begun
    FROM deliveries AS d
    JOIN firsts AS f ON f.queue = d.queue AND f.number = d.number AND f.at = d.at
    JOIN messages AS m ON m.queue = d.queue AND m.number = d.number
    JOIN rules AS r ON r.kind = 'ordered' AND r.queue = d.queue
    WHERE d.fired IS NOT NULL AND d.attempt = 0
), looked AS (
    SELECT *, min(fired) OVER (
        PARTITION BY queue, key ORDER BY number ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS fired_later
    FROM fired
)
SELECT queue, number FROM looked AS l
WHERE fired_later < fired
AND NOT EXISTS (SELECT 1 FROM faults AS f WHERE f.begun <= l.at AND f.ended >= l.begun)
AND NOT EXISTS (SELECT 1 FROM errors AS e WHERE e.at BETWEEN l.begun AND l.at)
"""

_TOGETHER = """
CREATE TABLE together AS
SELECT DISTINCT y.queue, y.number FROM held AS x
JOIN held AS y ON y.queue = x.queue AND y.key = x.key AND y.at > x.at AND y.at < x.settled
WHERE y.number <> x.number AND y.at - x.begun < :sweep_after
AND NOT EXISTS (
    SELECT 1 FROM lives AS l
    WHERE l.life = x.life AND l.begun <= y.at AND l.ended >= x.begun
)
AND NOT EXISTS (SELECT 1 FROM restores AS r WHERE r.ended >= x.begun AND r.begun <= y.at)
AND NOT EXISTS (
    SELECT 1 FROM faults AS f
    WHERE f.name = 'clock back' AND f.ended >= x.begun AND f.begun <= y.at
)
"""

_WRONG = ("lost", "unexpected", "duplicated", "disordered", "together")
#: Where the messages of each fate are.
_FATES = [
    ("SELECT queue, number FROM messages", "attempted"),
    ("SELECT queue, number FROM messages WHERE acknowledged IS NOT NULL", "acknowledged"),
    ("SELECT queue, number FROM firsts", "delivered"),
    ("SELECT queue, number FROM messages WHERE refused", "refused"),
    ("SELECT queue, number FROM missing WHERE fate = 'lost'", "lost"),
    ("SELECT queue, number FROM missing WHERE fate = 'undone'", "undone"),
    ("SELECT queue, number FROM missing WHERE fate = 'replaced'", "replaced"),
    (
        """
        SELECT f.queue, f.number FROM firsts AS f
        LEFT JOIN messages AS m ON m.queue = f.queue AND m.number = f.number
        WHERE m.number IS NULL OR m.refused OR EXISTS (
            SELECT 1 FROM deliveries AS d
            WHERE d.queue = f.queue AND d.number = f.number AND d.altered
        )
        """,
        "unexpected",
    ),
    (
        """
        SELECT f.queue, f.number FROM firsts AS f
        JOIN messages AS m ON m.queue = f.queue AND m.number = f.number
        WHERE m.acknowledged IS NULL AND NOT m.refused
        """,
        "recovered",
    ),
    ("SELECT queue, number FROM pairs WHERE reason IS NULL", "duplicated"),
    ("SELECT queue, number FROM pairs WHERE reason IS NOT NULL", "again"),
    ("SELECT queue, number FROM disordered", "disordered"),
    ("SELECT queue, number FROM together", "together"),
]


def _ledger(entries: Iterable[Entry]) -> sqlite3.Connection:
    """Return the entries as tables of a database in memory."""
    database = sqlite3.connect(":memory:")
    database.executescript(_TABLES)
    loads: dict[tuple[str, int], Entry] = {}
    settles: dict[tuple[str, int], Entry] = {}
    copies: dict[tuple[str, int], Entry] = {}
    faults: dict[int, Entry] = {}
    for entry in entries:
        match entry["what"]:
            case "loading":
                loads[entry["life"], entry["load"]] = {"outcome": None, "end": None, **entry}
            case "loaded" | "refused" | "unknown":
                begun = loads[entry["life"], entry["load"]]
                begun |= {"outcome": entry["what"], "end": entry["at"]}
            case "delivered":
                database.executemany(_DELIVERY, _delivered(entry))
            case "settling":
                settles[entry["life"], entry["settle"]] = {"status": None, "end": None, **entry}
            case "settled":
                begun = settles[entry["life"], entry["settle"]]
                done = entry["held"] == sum(len(begun[name]) for name in _OUTCOMES)
                begun |= {"status": "done" if done else "partly", "end": entry["at"]}
            case "died":
                died = {"begun": entry["at"], **entry}
                database.execute("INSERT INTO lives VALUES (:name, :begun, :at)", died)
            case "fault":
                faults[entry["fault"]] = {"of": None, "end": NEVER, **entry}
            case "concerns":
                faults[entry["fault"]]["of"] = entry["of"]
            case "healed":
                faults[entry["fault"]]["end"] = entry["at"]
            case "restored":
                restored = {"store": None, **entry}
                database.execute(
                    "INSERT INTO restores VALUES (:store, :copied, :begun, :at)", restored
                )
            case "copying":
                copies[entry["life"], entry["copy"]] = {"begun": entry["at"], **entry}
            case "copied":
                copies[entry["life"], entry["copy"]]["at"] = entry["at"]
            case "excused":
                rows = [(number, entry["why"]) for number in entry["numbers"]]
                database.executemany("INSERT INTO excuses VALUES (?, ?)", rows)
            case "size":
                database.execute("INSERT INTO sizes VALUES (:queue, :size, :bound)", entry)
            case "error":
                database.execute("INSERT INTO errors VALUES (:life, :kind, :at)", entry)
    for load in loads.values():
        database.executemany(_ATTEMPT, _attempted(load))
    for settle in settles.values():
        database.executemany(_SETTLEMENT, _settled(settle))
    for copy in copies.values():
        rows = [(n, copy.get("store"), copy["begun"], copy["at"]) for n in copy["numbers"]]
        database.executemany("INSERT INTO copies VALUES (?, ?, ?, ?)", rows)
    database.executemany("INSERT INTO faults VALUES (:name, :at, :end, :of)", faults.values())
    return database


_OUTCOMES = ("delete", "reload", "sideline")
_ATTEMPT = """
INSERT INTO attempts VALUES (:queue, :number, :key, :store, :at, :end, :outcome)
"""
_DELIVERY = """
INSERT INTO deliveries VALUES
(NULL, :queue, :number, :message, :life, :begun, :at, :fired, :attempt, :altered, :key)
"""
_SETTLEMENT = """
INSERT INTO settles VALUES (:queue, :number, :life, :outcome, :begun, :end, :status)
"""


def _attempted(load: Entry) -> Iterator[Entry]:
    for number in range(load["first"], load["first"] + load["count"]):
        key = load.get("key") or key_of(number, load["keys"])
        yield {"store": None, **load, "number": number, "key": key}


def _delivered(entry: Entry) -> Iterator[Entry]:
    altered = set(entry.get("altered", ()))
    together = zip(entry["numbers"], entry["messages"], entry["attempts"], strict=True)
    for number, message, attempt in together:
        one = {"number": number, "message": message, "attempt": attempt}
        key = key_of(number, entry["keys"])
        yield {"fired": None, **entry, **one, "altered": number in altered, "key": key}


def _settled(settle: Entry) -> Iterator[Entry]:
    for outcome in _OUTCOMES:
        for number in settle[outcome]:
            yield {"begun": settle["at"], **settle, "number": number, "outcome": outcome}
