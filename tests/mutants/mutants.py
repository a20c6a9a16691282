"""Mistakes in the verbs, each as a small change of the text: a test must find each of them.

A condition is left out, two statements are swapped, a lock is not taken, a number is not raised.
"""

from __future__ import annotations

from dataclasses import dataclass

_CONTRACT = "tests/contract/test_{}.py"
_RACES = "tests/processes/interleavings"


@dataclass(frozen=True)
class Mutant:
    """A mistake: *old* occurs once in *file*, and becomes *new*."""

    name: str
    file: str
    old: str
    new: str
    #: Tests that should find it, if the simulation does not.
    tests: tuple[str, ...]


def _of(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    paths = (test if "/" in test else _CONTRACT.format(test) for test in tests)
    return Mutant(name, f"{file}.py", old, new, tuple(paths))


MUTANTS = (
    # Conditions left out.
    _of(
        "settle takes waiting messages too",
        "queue_core/catalog/slices/conditions",
        "        slices.c.ticket.is_not(None),\n",
        "",
        "delete",
        "sideline",
    ),
    _of(
        "a quarantine takes messages from their consumer",
        "queue_core/verbs/quarantine",
        "changes.mark(piece, piece.rows, state=int(State.DAMAGED))",
        "changes.leave_ticket(piece, piece.rows)",
        "quarantine_in_flight",
    ),
    _of(
        "a published batch is planned again without its damaged messages",
        "queue_core/verbs/quarantine",
        "if recorded is not None and recorded >= tickets.upto:",
        "if False:",
        "quarantine_in_flight",
    ),
    _of(
        "settle takes what others hold",
        "queue_core/catalog/holders/holders",
        "return Eligible(_BY_TICKET, {",
        "return Eligible((), {",
        "delete",
        "sweep",
    ),
    _of(
        "acknowledge deletes later tickets",
        "queue_core/verbs/acknowledge",
        "held_by(consumer.id, upto=upto)",
        "held_by(consumer.id)",
        "recover",
    ),
    _of(
        "acknowledge deletes tickets of others",
        "queue_core/verbs/acknowledge",
        "held_by(consumer.id, upto=upto)",
        "held_by(consumer.id, upto=upto)[1:]",
        "recover",
    ),
    _of(
        "acknowledge deletes what a restore took back",
        "queue_core/verbs/acknowledge",
        "if is_known:",
        "if True:",
        "restored_publications",
    ),
    _of(
        "sweep takes young messages",
        "queue_core/verbs/sweep",
        "abandoned.fired_before(age)",
        "abandoned.fired_before(0.0)",
        "sweep",
    ),
    _of(
        "recover takes planned tickets",
        "queue_core/catalog/holders/tickets",
        "            tickets.c.planned_at.is_(None),\n",
        "",
        "recover",
    ),
    _of(
        "recover takes tickets of the living",
        "queue_core/catalog/holders/tickets",
        "            consumers.c.heartbeat_at < dead,\n",
        "",
        "recover",
    ),
    _of(
        "recover leaves the ticket",
        "queue_core/catalog/holders/tickets",
        "delete(tickets).where(these)",
        "delete(tickets).where(false(), these)",
        "recover",
    ),
    _of(
        "fire does not check the epoch",
        "queue_core/catalog/holders/consumers",
        '    consumers.c.epoch == bindparam("its_epoch"),\n',
        "",
        "consumers",
    ),
    _of(
        "release looks at other segments",
        "queue_core/catalog/slices/segments",
        "slices.c.segment_id == segments.c.id",
        "slices.c.segment_id != segments.c.id",
        "delete",
    ),
    _of(
        "vacuum condemns live files",
        "queue_core/upkeep/tasks/vacuum",
        'if row.state == "garbage" and row.since <= before)',
        "if row.since <= before)",
        "vacuum",
    ),
    _of(
        "vacuum condemns young files",
        "queue_core/upkeep/tasks/vacuum",
        "if at not in known and written <= before)",
        "if at not in known)",
        "vacuum",
    ),
    _of(
        "publishing does not look for its files",
        "queue_core/catalog/records/publications",
        "    if missing:\n",
        "    if False:\n",
        "vacuum",
    ),
    _of(
        "publishing does not claim its files",
        "queue_core/catalog/records/publications",
        "    segments.claim(connection, locations)\n",
        "",
        "vacuum",
    ),
    # Numbers not raised, and records not kept.
    _of(
        "a ticket's number is not raised",
        "queue_core/catalog/holders/consumers",
        "last_ticket=consumers.c.last_ticket + 1)",
        "last_ticket=consumers.c.last_ticket + 0)",
        "recover",
        "source_session",
    ),
    _of(
        "an epoch is not raised",
        "queue_core/catalog/holders/consumers",
        '{"epoch": consumers.c.epoch + 1,',
        '{"epoch": consumers.c.epoch + 0,',
        "consumers",
    ),
    _of(
        "forgotten tickets are not skipped",
        "queue_core/catalog/holders/consumers",
        "    connection.execute(update(consumers).where(_IS_CURRENT).values(values), "
        "life(consumer))\n",
        "",
        "source_restored",
    ),
    _of(
        "the end of a batch is not kept",
        "queue_core/catalog/holders/consumers",
        "acknowledged=furthest)",
        "acknowledged=consumers.c.acknowledged)",
        "recover",
        "source_session",
        "source_restored",
    ),
    _of(
        "a plan does not mark its tickets",
        "queue_core/verbs/read_tickets",
        "mark_planned(connection, tickets)",
        "mark_planned(connection, TicketRange(tickets.consumer, tickets.upto, tickets.upto))",
        "recover",
    ),
    _of(
        "a batch is published whenever it comes",
        "queue_core/catalog/records/publications",
        "            where=publications.c.batch_id < statement.excluded.batch_id,\n",
        "",
        "publish_once",
    ),
    _of(
        "a repeated batch is not compared",
        "queue_core/catalog/records/publications",
        "    if batch.rows:\n        _check_repeated",
        "    if False:\n        _check_repeated",
        "publish_once",
    ),
    _of(
        "a load does not advance the pointer",
        "queue_core/catalog/slices/slices",
        'load_pointer=shards.c.load_pointer + bindparam("places")',
        'load_pointer=shards.c.load_pointer + 0 * bindparam("places")',
        "load",
    ),
    _of(
        "attempts are not counted",
        "queue_core/verbs/settle",
        "attempts = piece.attempts + 1",
        "attempts = piece.attempts",
        "sideline",
    ),
    # Slices written wrongly.
    _of(
        "a cut slice keeps its rows",
        "queue_core/catalog/slices/changes",
        "        execute_each(connection, _SHRINK, remainders)\n",
        "",
        "fire",
    ),
    _of(
        "an empty slice stays",
        "queue_core/catalog/slices/changes",
        "            connection.execute(_deleting(database), these)\n",
        "",
        "delete",
    ),
    _of(
        "a moved message is dropped",
        "queue_core/catalog/slices/changes",
        "            _write_moves(connection, moves)\n",
        "            pass\n",
        "sideline",
    ),
    _of(
        "a reloaded message keeps its ticket",
        "queue_core/catalog/slices/changes",
        'values |= {"state": int(State.LOADED), "consumer_id": None, "ticket": None}',
        'values |= {"state": int(State.LOADED)}',
        "reload",
    ),
    # Locks left out, which only a database with several writers shows.
    _of(
        "a firing takes no turns",
        "queue_core/catalog/slices/turns",
        "query.with_for_update(skip_locked=True, of=turns)",
        "query",
        f"{_RACES}/test_fire.py",
    ),
    _of(
        "a settlement does not lock its slices",
        "queue_core/verbs/settle",
        'fetch(connection, *where, given=of_holder, lock="wait")',
        "fetch(connection, *where, given=of_holder)",
        _RACES,
    ),
)
