"""Check names before they reach SQL, a path or a DataFrame, and make names for processes."""

import os
import re
import socket
import uuid
from collections.abc import Iterable, Sequence

from queue_core.errors import BadName

_QUEUE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_CONSUMER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}")
_OF_QUERY = re.compile(r"(keeper:)?spark:(.*:)?[0-9a-f]{32}")
_OF_PROCESS = re.compile(r"(python|pool|target|keeper):.*:[0-9]+:[0-9a-f]{8}")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")
_LONGEST_COLUMN = 255
#: The end of the name of a queue's sideline, after the name of the queue. Source: IgnisMQ.
SIDELINE_SUFFIX = "_SIDELINE"
#: The prefix of the names of keepers: consumers whose messages wait for a confirmation.
KEEPER = "keeper:"
#: The prefix of the names of writers by `txnAppId`, which choose the numbers of their batches.
WRITER = "txn:"
#: The most names that a message shows.
_SHOWN = 5


def check_queue(name: str) -> str:
    """Return *name* if it is a valid queue name; raises `BadName`."""
    if not isinstance(name, str) or not _QUEUE.fullmatch(name):
        raise BadName(
            f"queue name {name!r}: use a letter, then letters, digits, '_', '-' or '.', "
            "at most 128 in all"
        )
    return name


def is_snapshot(name: str) -> bool:
    """Return whether a queue is the hidden one of a snapshot."""
    return "@" in name


def of_snapshot(queue: str, name: object) -> str:
    """Return the name of the hidden queue of a snapshot; raises `BadName`."""
    whole = f"{queue}@{name}"
    if not _QUEUE.fullmatch(str(name)) or len(whole) > 128 or name in ("earliest", "latest"):
        raise BadName(
            f"snapshot name {name!r}: use a letter, then letters, digits, '_', '-' or '.', at most "
            f"{127 - len(queue)} in all, and neither 'earliest' nor 'latest'"
        )
    return whole


def check_magazine(name: str) -> str:
    """Return *name* if it can name a queue, or the sideline of one; raises `BadName`."""
    if isinstance(name, str) and name != SIDELINE_SUFFIX:
        check_queue(name.removesuffix(SIDELINE_SUFFIX))
        return name
    return check_queue(name)


def check_consumer(name: str) -> str:
    """Return *name* if it is a valid consumer name; raises `BadName`."""
    if not isinstance(name, str) or not _CONSUMER.fullmatch(name):
        raise BadName(
            f"consumer name {name!r}: use a letter or digit, then letters, digits or any of "
            "'_.:@-', at most 200 in all"
        )
    return name


def check_columns(names: Iterable[str], reserved: Iterable[str]) -> None:
    """Raise `BadName` for a column name that is empty, reserved, or repeated in any case."""
    taken = set(reserved)
    seen: dict[str, str] = {}
    for name in names:
        if not name or len(name) > _LONGEST_COLUMN or not name.isprintable():
            raise BadName(f"column name {name!r}: use 1 to {_LONGEST_COLUMN} printable characters")
        if name.lower() in taken:
            raise BadName(f"column name {name!r} is reserved for ignis; rename the column")
        twin = seen.get(name.lower())
        if twin == name:
            raise BadName(f"column {name!r} appears twice; rename one of them")
        if twin is not None:
            raise BadName(f"columns {twin!r} and {name!r} differ only in case; rename one of them")
        seen[name.lower()] = name


def of_process() -> str:
    """Return a unique name for this process: host, process id and a random suffix."""
    return f"{host()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def host() -> str:
    """Return the name of this machine, up to 80 characters."""
    return socket.gethostname()[:80]


def is_of_process(name: str) -> bool:
    """Return whether a consumer's name was made for a process, so that no other one gets it."""
    return _OF_PROCESS.fullmatch(name) is not None


def of_query(queues: Sequence[str] = ()) -> str:
    """Return a unique name for a new query's consumer: queues, this host, random digits."""
    told = "".join(f"{part}:" for part in (speaking(listed(queues)), host()) if queues)
    return f"spark:{told}{uuid.uuid4().hex}"


def speaking(text: str) -> str:
    """Return a text as a readable part of a consumer's name: short, in valid characters only."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:60].strip("-.")


def is_of_query(name: str) -> bool:
    """Return whether `of_query` made a name, so that no consumer of another store has it."""
    return _OF_QUERY.fullmatch(name) is not None


def of_keeper(name: str) -> str:
    """Return the name of a consumer that keeps its messages."""
    return KEEPER + name.removeprefix(KEEPER)


def is_kind(name: str) -> bool:
    """Return whether a text can be the kind of a failure: one word."""
    return _KIND.fullmatch(name) is not None


def listed(names: Sequence[str], *, quoted: bool = False, spaced: bool = False) -> str:
    """Return names for a message: all of a few, and the first of many with the number of others."""
    shown = [repr(name) if quoted else name for name in names[:_SHOWN]]
    others = len(names) - len(shown)
    comma = ", " if quoted or spaced else ","
    return comma.join(shown) + (f" and {others:,} more" if others else "")


def near_first(name: str, known: Iterable[str]) -> list[str]:
    """Return names for `listed`: those that are like *name* come first, the others in order."""
    # Not at the top: a query's start does not wait for this.
    import difflib

    others = sorted(known)
    near = difflib.get_close_matches(name, others, n=_SHOWN, cutoff=0.6)
    return near + [other for other in others if other not in near]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'path'?``, or an empty text without a near name."""
    # Not at the top: a query's start does not wait for this.
    import difflib

    lower = {candidate.lower(): candidate for candidate in known}
    match = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[match[0]]!r}?" if match else ""
