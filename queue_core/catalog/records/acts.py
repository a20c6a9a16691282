"""Acts: what a person did, who it was and how, written in the transactions that do it.

A face that a person calls is marked with `by_hand`. A transaction within the call that changes
something calls `note`, which writes the row of the act. Of an act of many transactions, each adds
its messages to the row, and the end of the call is written last. So an act that was interrupted
shows what it has done, and one that was refused has no row.
"""

from __future__ import annotations

import getpass
import inspect
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, wraps
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from sqlalchemy import Connection, Row, delete, func, select, update

from queue_core.catalog import dialect
from queue_core.catalog.damage import decoding
from queue_core.catalog.record_tables import acts
from queue_core.errors import IgnisError
from queue_core.values.names import host

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog

#: Seconds for which acts are kept.
KEPT_SECONDS = 90 * 24 * 3600.0
#: The most characters that are kept of a selector, of an argument, and of an error.
_LENGTH = 2000
#: The most values of a list, such as ids, that are kept.
_SHOWN = 20
#: The most characters of a person's name.
_WHO_LENGTH = 200
#: The commands of methods with other names.
_COMMANDS = {"start_shovel": "shovel", "change_settings": "set", "accept_clock": "clock"}
_COMMANDS |= {each: f"breaker {each}" for each in ("open", "close")} | {"release": "breaker auto"}

#: The numbers of the acts of this process.
_ACTS = count(1)
_log = logging.getLogger(__name__)
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Result = TypeVar("_Result")


class Doer(NamedTuple):
    """Who acts, and by what: ``python``, ``command line`` or ``console``."""

    by: str = "python"
    #: None: the user of this process.
    who: str | None = None
    #: The id of the act; None: a random one.
    id: str | None = None
    #: How the person chose what the call names by ids, such as by a reason.
    chosen: Mapping[str, Any] = {}


#: Who acts in this context.
DOER: ContextVar[Doer] = ContextVar("ignis_doer")
_USER = Doer()


class Subject(NamedTuple):
    """What an act concerns."""

    catalog: Catalog
    #: None: the store.
    queue: str | None = None
    #: What the face knows of the choice, besides the arguments of the call.
    chosen: Mapping[str, Any] = {}


class _Face(Protocol):
    @property
    def _subject(self) -> Subject: ...


@dataclass(slots=True)
class _Act:
    verb: str
    queue: str | None
    chosen: dict[str, Any]
    id: str
    #: Whether a transaction has written it, and another one may follow.
    goes_on: bool = False


_current: ContextVar[_Act | None] = ContextVar("ignis_act", default=None)


def by_hand(method: _Method) -> _Method:
    """Make a method of a face an act, which has its arguments, and the name of its command."""
    verb = _COMMANDS.get(method.__name__, method.__name__)
    signature = inspect.signature(method)

    @wraps(method)
    def act(self: _Face, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        del given["self"]
        given |= given.pop("settings", {})
        subject = self._subject
        with acting(subject.catalog, verb, subject.queue, {**subject.chosen, **given}):
            return method(self, *args, **kwargs)

    return cast(_Method, act)


def new_id() -> str:
    """Return the id of a new act: in order of those of this process at the same moment."""
    return f"{next(_ACTS) % (1 << 24):06x}{secrets.token_hex(5)}"


@contextmanager
def acting(
    catalog: Catalog, verb: str, queue: str | None, chosen: Mapping[str, Any]
) -> Iterator[None]:
    """Do an act, unless the block is a part of another one."""
    if _current.get() is not None:
        yield
        return
    person = DOER.get(_USER)
    given = {n: value for n, value in chosen.items() if value is not None and n != "progress"}
    if person.chosen and "ids" not in person.chosen:
        given.pop("ids", None)
    act = _Act(verb, queue, {**person.chosen, **given}, person.id or new_id())
    token = _current.set(act)
    error: str | None = None
    fields = {"act": act.id, "verb": verb, "queue": queue, "who": doer()}
    what = f"{verb} of {'the store' if queue is None else repr(queue)} by {fields['who']}"
    _log.info("%s begins", what, extra=fields)
    try:
        yield
    except BaseException as raised:
        error = str(raised) or repr(raised)
        raise
    finally:
        _current.reset(token)
        ended = "has ended" if error is None else f"failed: {error}"
        _log.info("%s %s", what, ended, extra=fields)
        if act.goes_on:
            end(catalog, act, error)


def note(connection: Connection, messages: int | None = None) -> None:
    """
    Write the act of this context, if there is one, in the transaction that does it.

    *messages*: how many further ones the transaction has changed; None: the act has one
    transaction, and changes no messages.
    """
    act = _current.get()
    if act is None or messages == 0:
        return
    now = dialect.read_clock(connection)
    selector = act.chosen.get("selector")
    row = {
        "id": act.id,
        "queue": act.queue,
        "verb": act.verb,
        "who": doer()[:_WHO_LENGTH],
        "host": host(),
        "by": DOER.get(_USER).by,
        "selector": None if selector is None else str(selector)[:_LENGTH],
        "chosen": _as_json({k: v for k, v in act.chosen.items() if k != "selector"}),
        "messages": messages,
        "begun_at": now,
        "ended_at": now if messages is None else None,
    }
    # The act may have begun with a change that has no messages.
    before = func.coalesce(acts.c.messages, 0)
    added = {"ended_at": now} if messages is None else {"messages": before + messages}
    upsert = dialect.insert_new(connection, acts).values(row)
    connection.execute(upsert.on_conflict_do_update(index_elements=[acts.c.id], set_=added))
    act.goes_on = messages is not None


def noting(work: Callable[[Connection], _Result]) -> Callable[[Connection], _Result]:
    """Return *work* of a transaction that also notes the act."""

    def noted(connection: Connection) -> _Result:
        result = work(connection)
        note(connection)
        return result

    return noted


def about(*, queue: str | None = None, **chosen: Any) -> None:
    """Add to the act of this context what its call has found out, such as the *queue*."""
    act = _current.get()
    if act is not None:
        act.chosen |= chosen
        act.queue = queue or act.queue


def chosen_by(**chosen: Any) -> None:
    """Note how the person of this context has chosen messages that a call will name by ids."""
    known = {name: value for name, value in chosen.items() if value is not None}
    DOER.set(DOER.get(_USER)._replace(chosen=known))


def doer() -> str:
    """Return the person who acts: by default, this process' user; with sudo, ``carol as root``."""
    return DOER.get(_USER).who or user()


@cache
def user() -> str:
    """Return the user of this process, which keeps it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A container may have no name for its user.
        name = str(os.getuid())
    # With sudo, the person is another one.
    person = os.environ.get("SUDO_USER", name)
    return name if person in ("", name) else f"{person} as {name}"


def rows(connection: Connection, queues: Sequence[str] | None, most: int | None) -> list[Row[Any]]:
    """Return the latest acts, at most *most*, in order; of queues with these names, or of all."""
    query = select(acts).where(*dialect.among(acts.c.queue, queues)).limit(most)
    query = query.order_by(acts.c.begun_at.desc(), acts.c.id.desc())
    return list(reversed(connection.execute(query).all()))


def doers(connection: Connection, verb: str, at: Mapping[str, int]) -> dict[str, str]:
    """Return who did a verb at some times, as ``user@host``; *at*: by their queue or breaker."""
    if not at:
        return {}
    # The time of an act is read a little after that of what it changes.
    query = select(acts).where(acts.c.verb == verb, acts.c.begun_at >= min(at.values()))
    found: dict[str, str] = {}
    for row in connection.execute(query.order_by(acts.c.begun_at)):
        subject = str(row.queue or chosen_of(row).get("breaker"))
        if subject in at and row.begun_at >= at[subject]:
            found.setdefault(subject, f"{row.who}@{row.host}")
    return found


def chosen_of(row: Row[Any]) -> dict[str, Any]:
    """Return the arguments of an act; raises `DamagedCatalog`."""
    with decoding(acts, f"id {row.id}"):
        return dict(json.loads(row.chosen))


def forget(connection: Connection) -> None:
    """Remove old acts."""
    connection.execute(delete(acts).where(acts.c.begun_at < dialect.after(-KEPT_SECONDS)))


def end(catalog: Catalog, act: _Act, error: str | None) -> None:
    """Write that an act has ended; one whose end cannot be written looks interrupted."""
    values = {"ended_at": dialect.now(), "error": None if error is None else error[:_LENGTH]}
    try:
        catalog.write(lambda c: c.execute(update(acts).where(acts.c.id == act.id).values(values)))
    except IgnisError as failure:
        _log.warning("the end of %s of queue %s cannot be noted: %s", act.verb, act.queue, failure)


def _as_json(chosen: Mapping[str, Any]) -> str:
    shown = {}
    for name, value in chosen.items():
        if hasattr(value, "to_pylist") or isinstance(value, list | tuple):
            few = [*value[: _SHOWN + 1]]
            more = f" and {len(value) - _SHOWN:,} more" if len(few) > _SHOWN else ""
            value = ", ".join(map(str, few[:_SHOWN])) + more
        shown[name] = value if isinstance(value, int | float) else str(value)[:_LENGTH]
    return json.dumps(shown, ensure_ascii=False, default=str)
