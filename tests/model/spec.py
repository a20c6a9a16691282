"""The specification: one queue, a query that copies it, a consumer of its own, and their faults.

A state is a frozen value; an action takes a state to its successors. Each action is one transaction
of the catalog, one entry of Spark's log, or a fault, so that a crash can come between any two. The
guards of the protocol are the fields of `Rules`: without one of them, some invariant breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

MAIN, SIDELINE = "main", "sideline"
LOADED, FIRED, DAMAGED = "loaded", "fired", "damaged"
QUERY, HANDLER = "query", "handler"


@dataclass(frozen=True, order=True)
class Slice:
    """A message at its place; the model needs no more than one message in a slice."""

    message: int
    magazine: str = MAIN
    state: str = LOADED
    consumer: str = ""
    ticket: int = 0

    def fired(self, consumer: str, ticket: int) -> Slice:
        """Return it in the hands of a ticket."""
        return replace(self, state=FIRED, consumer=consumer, ticket=ticket)

    def loaded(self, magazine: str | None = None) -> Slice:
        """Return it waiting, by default in the magazine where it is."""
        return Slice(self.message, magazine or self.magazine)


def transition(before: Slice | None, after: Slice | None) -> str | None:
    """Return the verb that takes a message from one place to another; None if there is none."""
    if before == after:
        return "stay"
    if before is None or after is None:
        present = after or before
        assert present is not None, "they differ"
        if before is None:
            # A firing from a subscription also takes in what is in the log: both at once.
            return _INTO_MAIN.get((present.magazine, present.state))
        return {LOADED: "remove", FIRED: "delete", DAMAGED: None}[_as_held(present)]
    states = (before.state, after.state)
    if before.magazine == after.magazine:
        holder_stays = (before.consumer, before.ticket) == (after.consumer, after.ticket)
        if before.consumer and after.consumer and not holder_stays:
            return None
        if states == (DAMAGED, DAMAGED):
            return "leave" if before.consumer else None
        if after.state == DAMAGED and after.consumer != before.consumer:
            return None
        if before.state == DAMAGED and after.state == LOADED and before.consumer:
            return "reload"
        if before.state == DAMAGED and after.state == FIRED and not before.consumer:
            return None
        return _IN_PLACE.get(states)
    if after.state != LOADED:
        return None
    if after.magazine == SIDELINE:
        return {FIRED: "sideline", LOADED: "abandon"}.get(_as_held(before))
    return "shovel" if before.state == LOADED else None


def _as_held(one: Slice) -> str:
    """Return the state as the settling consumer sees it: a quarantine takes nothing from it."""
    return FIRED if one.consumer else one.state


#: How a message that was nowhere comes into a queue.
_INTO_MAIN = {(MAIN, LOADED): "load", (MAIN, FIRED): "take"}

#: Verbs that leave a message in its magazine, by its state before and after.
_IN_PLACE = {
    (LOADED, FIRED): "fire",
    (FIRED, LOADED): "reload",
    (LOADED, DAMAGED): "quarantine",
    (FIRED, DAMAGED): "quarantine",
    (DAMAGED, LOADED): "repair",
    (DAMAGED, FIRED): "repair",
}


@dataclass(frozen=True)
class Ticket:
    """A ticket of the query; planned: somebody may have seen its messages."""

    number: int
    planned: bool = False


@dataclass(frozen=True)
class Catalog:
    """The contents of one database, which a backup restores."""

    slices: frozenset[Slice] = frozenset()
    tickets: frozenset[Ticket] = frozenset()
    last: int = 0
    acknowledged: int = 0
    epoch: int = 0
    handler_tickets: int = 0
    #: Messages that were loaded, and those that were deleted because they are done.
    known: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()

    def held(self, after: int, upto: int) -> frozenset[Slice]:
        """Return the messages of the query's tickets between two numbers."""
        return frozenset(s for s in self.slices if s.consumer == QUERY and after < s.ticket <= upto)

    def without(self, gone: frozenset[Slice], *new: Slice) -> Catalog:
        """Return the catalog with some slices instead of others."""
        return replace(self, slices=(self.slices - gone) | frozenset(new))


@dataclass(frozen=True)
class Target:
    """The catalog of the queue that the query copies to: the same, or another one."""

    published: int = -1
    #: The ticket that the record of that batch names.
    recorded: int = 0
    copies: tuple[int, ...] = ()


@dataclass(frozen=True)
class Driver:
    """A life of the query: its epoch, and its memory of the batch in progress."""

    epoch: int
    phase: str
    start: int = 0
    end: int = 0
    rows: frozenset[int] = frozenset()


@dataclass(frozen=True)
class State:
    """Everything, at one moment."""

    catalog: Catalog = Catalog()
    target: Target = Target()
    #: Where each planned batch ends, and how many of them are committed.
    log: tuple[int, ...] = ()
    committed: int = 0
    driver: Driver | None = None
    #: A life that stands still while another one goes on.
    zombie: Driver | None = None
    backup: tuple[Catalog, Target] | None = None
    #: Messages whose history a sweep or a restore explains.
    excused: frozenset[int] = frozenset()
    #: What each batch had when it was first read.
    read: tuple[frozenset[int], ...] = ()
    #: A ticket was fired under a number that Spark had logged.
    reused: bool = False
    #: A firing took what somebody held.
    stolen: bool = False
    restored: bool = False


@dataclass(frozen=True)
class Rules:
    """The guards of the protocol."""

    #: A batch is published with the record of its number, or not at all.
    publish_once: bool = True
    #: The source acknowledges only what Spark has committed.
    acknowledge_committed: bool = True
    #: Only the tickets of a consumer that is dead are recovered or swept.
    spare_living: bool = True
    #: A planned ticket is not recovered.
    spare_planned: bool = True
    #: Tickets that Spark has logged and the catalog does not know are skipped.
    skip_forgotten: bool = True
    #: A firing takes loaded messages only.
    fire_loaded: bool = True
    #: A shovel takes a message out of the sideline when it brings it to main.
    move_whole: bool = True
    #: A consumer settles only what it holds.
    settle_held: bool = True
    #: In one store, only tickets that a record names are deleted, and the others loaded again.
    compare_records: bool = True
    #: Nothing is fired or planned before what Spark has committed is acknowledged.
    acknowledge_first: bool = True
    #: A batch from tickets that the catalog has forgotten is refused.
    refuse_forgotten: bool = True


@dataclass(frozen=True)
class Bounds:
    """How far the model is explored, and which faults there are."""

    messages: int = 2
    epochs: int = 2
    batches: int = 3
    tickets: int = 3
    handler: bool = False
    sweeps: bool = False
    zombies: bool = False
    restores: bool = False
    #: Whether the query copies to a queue of the same catalog.
    near: bool = False
    limits: tuple[int, ...] = field(default=(1,))


#: An action's name, and the state after it.
Step = tuple[str, State]


def initial(bounds: Bounds) -> State:
    """Return the state of a new store."""
    return State(target=Target(copies=(0,) * bounds.messages))


def steps(state: State, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    """Yield every step that can follow."""
    yield from _load(state, bounds)
    yield from _life(state, bounds)
    for name in ("driver", "zombie"):
        driver = getattr(state, name)
        if driver is not None:
            yield from _driver(state, name, driver, rules, bounds)
    if bounds.handler:
        yield from _handler(state, rules, bounds)
    if bounds.sweeps:
        yield from _tasks(state, rules)
    if bounds.restores:
        yield from _restore(state, bounds)


def _load(state: State, bounds: Bounds) -> Iterator[Step]:
    catalog = state.catalog
    number = len(catalog.known)
    if number < bounds.messages:
        known = catalog.known | {number}
        catalog = replace(catalog.without(frozenset(), Slice(number)), known=known)
        yield f"load {number}", replace(state, catalog=catalog)


def _life(state: State, bounds: Bounds) -> Iterator[Step]:
    """The query is started, crashes, or is started elsewhere while it stands still."""
    if state.driver is not None:
        yield "crash", replace(state, driver=None)
        if bounds.zombies and state.zombie is None and state.catalog.epoch < bounds.epochs:
            yield "freeze", replace(state, driver=None, zombie=state.driver)
    elif state.catalog.epoch < bounds.epochs:
        catalog = replace(state.catalog, epoch=state.catalog.epoch + 1)
        start = state.log[state.committed - 1] if state.committed else 0
        again = len(state.log) > state.committed
        end = state.log[-1] if again else start
        driver = Driver(catalog.epoch, "logged" if again else "between", start, end)
        yield "start", replace(state, catalog=catalog, driver=driver)


def _driver(
    state: State, name: str, driver: Driver, rules: Rules, bounds: Bounds
) -> Iterator[Step]:
    """The next step of a life of the query."""

    def after(step: str, new: Driver, **changed: object) -> Step:
        return f"{name}: {step}", replace(state, **{name: new}, **changed)  # type: ignore[arg-type]

    catalog = state.catalog
    fenced = driver.epoch != catalog.epoch
    behind_spark = catalog.acknowledged < driver.start and rules.acknowledge_first
    if driver.phase == "between" or (driver.phase in ("acknowledged", "logged") and behind_spark):
        if not fenced:
            upto = driver.start if rules.acknowledge_committed else catalog.last
            phase = "acknowledged" if driver.phase == "between" else driver.phase
            closed = _acknowledged(state, upto, rules, bounds)
            yield after(f"acknowledge {upto}", replace(driver, phase=phase), catalog=closed)
    elif driver.phase == "acknowledged":
        behind = sorted(t.number for t in catalog.tickets if t.number > driver.start)
        if behind:
            yield after(f"find ticket {behind[0]}", replace(driver, phase="fired", end=behind[0]))
        elif not fenced and catalog.last < bounds.tickets:
            for limit in bounds.limits:
                yield from _fire(state, after, driver, rules, limit)
    elif driver.phase == "fired":
        # Spark writes an entry of its log once: of two drivers the later one ends.
        here = state.log[state.committed - 1] if state.committed else 0
        if here == driver.start and len(state.log) == state.committed < bounds.batches:
            log = (*state.log, driver.end)
            yield after(f"log batch {len(log) - 1}", replace(driver, phase="logged"), log=log)
    elif driver.phase == "logged":
        yield _plan(state, after, driver, rules)
    elif driver.phase == "read":
        forgotten = bounds.near and catalog.last < driver.end and rules.refuse_forgotten
        if forgotten:
            yield f"{name}: refused", replace(state, **{name: None})  # type: ignore[arg-type]
        else:
            yield _publish(state, after, driver, rules)
    elif driver.phase == "published":
        number = _batch(state, driver)
        if state.committed == number:
            new = replace(driver, phase="between", start=driver.end, rows=frozenset())
            yield after(f"commit batch {number}", new, committed=number + 1)


def _acknowledged(state: State, upto: int, rules: Rules, bounds: Bounds) -> Catalog:
    catalog, target = state.catalog, state.target
    held = catalog.held(0, upto)
    records = bounds.near and rules.compare_records and target.published >= 0
    lost = frozenset(s for s in held if records and s.ticket > target.recorded)
    return replace(
        _skipped(catalog, upto, rules).without(held, *(s.loaded() for s in lost)),
        acknowledged=max(catalog.acknowledged, upto),
        tickets=frozenset(t for t in catalog.tickets if t.number > upto),
    )


def _fire(state: State, after, driver: Driver, rules: Rules, limit: int) -> Iterator[Step]:  # type: ignore[no-untyped-def]
    catalog = _skipped(state.catalog, driver.start, rules)
    main = sorted(s for s in catalog.slices if s.magazine == MAIN)
    waiting = [s for s in main if s.state == LOADED or not rules.fire_loaded]
    taken = frozenset(waiting[:limit])
    if taken:
        number = catalog.last + 1
        fired = catalog.without(taken, *(s.fired(QUERY, number) for s in taken))
        fired = replace(fired, last=number, tickets=fired.tickets | {Ticket(number)})
        new = replace(driver, phase="fired", end=number)
        reused = state.reused or number in state.log
        stolen = state.stolen or any(s.state == FIRED for s in taken)
        changed = {"catalog": fired, "reused": reused, "stolen": stolen}
        yield after(f"fire ticket {number}", new, **changed)


def _plan(state: State, after, driver: Driver, rules: Rules) -> Step:  # type: ignore[no-untyped-def]
    number = _batch(state, driver)
    catalog = _skipped(state.catalog, driver.end, rules)
    planned = frozenset(
        replace(t, planned=True) if driver.start < t.number <= driver.end else t
        for t in catalog.tickets
    )
    rows = frozenset(s.message for s in catalog.held(driver.start, driver.end))
    read = state.read if len(state.read) > number else (*state.read, rows)
    new = replace(driver, phase="read", rows=rows)
    catalog = replace(catalog, tickets=planned)
    return after(f"plan batch {number}: {sorted(rows)}", new, catalog=catalog, read=read)  # type: ignore[no-any-return]


def _publish(state: State, after, driver: Driver, rules: Rules) -> Step:  # type: ignore[no-untyped-def]
    number = _batch(state, driver)
    target = state.target
    if target.published < number or not rules.publish_once:
        copies = tuple(n + (m in driver.rows) for m, n in enumerate(target.copies))
        target = Target(max(number, target.published), driver.end, copies)
    new = replace(driver, phase="published")
    return after(f"publish batch {number}", new, target=target)  # type: ignore[no-any-return]


def _batch(state: State, driver: Driver) -> int:
    """Return the number of the batch that ends where the driver's does."""
    return max(n for n, end in enumerate(state.log) if end == driver.end)


def _skipped(catalog: Catalog, logged: int, rules: Rules) -> Catalog:
    return replace(catalog, last=max(catalog.last, logged)) if rules.skip_forgotten else catalog


def _handler(state: State, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    """A consumer without a checkpoint, which deletes or reloads its fired messages."""
    catalog = state.catalog
    for one in sorted(catalog.slices):
        rest = frozenset({one})
        is_free = one.magazine == MAIN and one.state == LOADED
        if is_free and catalog.handler_tickets < bounds.tickets:
            number = catalog.handler_tickets + 1
            fired = catalog.without(rest, one.fired(HANDLER, number))
            fired = replace(fired, handler_tickets=number)
            yield f"handler fires {one.message}", replace(state, catalog=fired)
            break
    for one in sorted(catalog.slices):
        mine = one.consumer == HANDLER or (one.state == FIRED and not rules.settle_held)
        if mine:
            done = replace(catalog.without(frozenset({one})), done=catalog.done | {one.message})
            yield f"handler deletes {one.message}", replace(state, catalog=done)
            for verb, back in (("reloads", one.loaded()), ("sidelines", one.loaded(SIDELINE))):
                again = catalog.without(frozenset({one}), back)
                yield f"handler {verb} {one.message}", replace(state, catalog=again)


def _tasks(state: State, rules: Rules) -> Iterator[Step]:
    """Recover, sweep and shovel."""
    catalog = state.catalog
    is_dead = state.driver is None
    if is_dead or not rules.spare_living:
        unseen = {t for t in catalog.tickets if not t.planned or not rules.spare_planned}
        numbers = {t.number for t in unseen}
        back = frozenset(s for s in catalog.slices if s.consumer == QUERY and s.ticket in numbers)
        if unseen:
            again = catalog.without(back, *(s.loaded() for s in back))
            again = replace(again, tickets=again.tickets - unseen)
            yield "recover", replace(state, catalog=again)
        stuck = catalog.held(0, catalog.last)
        if stuck:
            swept = catalog.without(stuck, *(s.loaded(SIDELINE) for s in stuck))
            # Whoever may have copied them cannot know: the limit that the protocol names.
            shown = {s.message for s in stuck if Ticket(s.ticket, True) in catalog.tickets}
            shown |= {s.message for s in stuck if s.ticket <= catalog.acknowledged}
            excused = state.excused | (shown if is_dead else frozenset())
            yield "sweep", replace(state, catalog=swept, excused=excused)
    aside = frozenset(s for s in catalog.slices if (s.magazine, s.state) == (SIDELINE, LOADED))
    if aside:
        gone = aside if rules.move_whole else frozenset()
        moved = catalog.without(gone, *(s.loaded(MAIN) for s in aside))
        yield "shovel", replace(state, catalog=moved)
    held = frozenset(s for s in catalog.slices if s.consumer == HANDLER)
    if held:
        swept = catalog.without(held, *(s.loaded(SIDELINE) for s in held))
        yield "sweep the handler's", replace(state, catalog=swept)


def _restore(state: State, bounds: Bounds) -> Iterator[Step]:
    """A backup of the catalog is made once, and put back once."""
    if state.backup is None:
        # Before the first record a catalog does not know that it is source and target.
        if state.target.published >= 0 or not bounds.near:
            yield "back up", replace(state, backup=(state.catalog, state.target))
    elif not state.restored:
        catalog, target = state.backup
        lost = state.catalog.known - catalog.known
        known = catalog.known | lost
        # Epochs of lives that began since are forgotten too; the numbers go on in the model.
        catalog = replace(catalog, known=known, epoch=state.catalog.epoch)
        copied = {m for m, n in enumerate(state.target.copies) if n}
        # What a life has in memory arrives in another store, whatever becomes of this one.
        copied |= {m for d in (state.driver, state.zombie) if d is not None for m in d.rows}
        excused = state.excused | lost
        if bounds.near:
            yield (
                "restore",
                replace(state, catalog=catalog, target=target, restored=True, excused=excused),
            )
        else:
            # What had arrived in another store may arrive there again.
            yield (
                "restore",
                replace(state, catalog=catalog, restored=True, excused=excused | copied),
            )
