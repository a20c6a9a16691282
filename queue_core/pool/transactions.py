"""Transactions of handlers: the rows of a call and the end of its messages are committed together.

Each call has a transaction on a connection of its own, which the handler takes as its last
argument. If the call deletes a message, all its messages are settled in this transaction before its
commit. Otherwise it is rolled back, and the messages are settled as usual. Changes: those of the
handler and of a settlement. Guard: a settlement of messages that are not held any more is refused,
so a late call commits nothing. A call that could not commit deletes no message: those that it still
holds are sidelined. Crash: the database rolls back, and the messages are swept.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from queue_core.catalog import connections, dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.databases.interface import TransactionFailed
from queue_core.errors import BadOption, BadOutcome, Conflict, IgnisError
from queue_core.handling.calls import Superseded, Uncommitted
from queue_core.handling.deadline import interruptibly
from queue_core.handling.handler import settlement_rows, takes_batches
from queue_core.handling.verdicts import Verdicts
from queue_core.pool.timings import RETRY_SECONDS
from queue_core.queue.within import NotHeld
from queue_core.values.failure_kinds import reason_of
from queue_core.values.outcomes import DELETE

if TYPE_CHECKING:
    from sqlalchemy.engine import ExceptionContext

    from queue_core.pool.batch import PoolBatch

#: Calls of a handler for the same messages while other transactions are in the way.
TRIES = 8
#: The pause before the first of them is repeated; it doubles each time.
PAUSE_SECONDS = 0.01
#: Transactions of one pool at the same time, as many as its connections.
AT_ONCE = 16
_log = logging.getLogger(__name__)
#: Statements that end a transaction; comments may come first. A savepoint may be rolled back.
_ENDS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b))\b",
    re.IGNORECASE | re.DOTALL,
)
#: The call of this thread, whether it is in the handler, and the last error of its statements.
_here = threading.local()


class Transactions:
    """
    The transactions of the handler of a pool, or of a test.

    Args:
        catalog: The catalog, whose database has the caller's tables too.
        handler: The handler, which takes a connection as its last argument.
        on_none: The outcome of a message when the handler returns None for it.
    """

    def __init__(self, catalog: Catalog, handler: Callable[..., Any], on_none: str | None) -> None:
        self._catalog = catalog
        self._dialect = dialect.of(catalog.engine)
        self._in_batches = takes_batches(handler)
        self._handler = handler
        self._on_none = on_none
        self._engine = catalog.own_engine()
        for name in ("commit", "rollback"):
            event.listen(self._engine, name, _refuse_to_end)
        event.listen(self._engine, "before_cursor_execute", _check_statement)
        event.listen(self._engine, "handle_error", _remember)
        self._dialect.let_abort(self._engine, lambda: _here.call.aborted)
        # On SQLite, others would poll for the one transaction that writes.
        self._free = threading.BoundedSemaphore(AT_ONCE if self._dialect.writes_in_parallel else 1)
        #: The calls in progress, by thread.
        self._open: dict[threading.Thread, _Call] = {}

    def call(self, batch: PoolBatch, *arguments: Any) -> Any:
        """Call the handler; repeat it after conflicts, and while the database cannot be reached."""
        # Once: a late call keeps its messages, and another thread goes on with the next ones.
        ids = batch.ids_of(arguments)
        _here.call = call = self._open[threading.current_thread()] = _Call()
        tries = 0
        try:
            while True:
                try:
                    return self._try(batch, call, arguments, ids)
                except (DBAPIError, IgnisError) as error:
                    if _is_lost(error):
                        # Nobody else can settle meanwhile, and a call that takes too long is timed
                        # out.
                        time.sleep(RETRY_SECONDS)
                        continue
                    if not self._is_in_the_way(error):
                        raise
                    tries += 1
                    if tries == TRIES:
                        raise Uncommitted(reason_of(error)) from error
                time.sleep(random.uniform(0, PAUSE_SECONDS * 2**tries))
        finally:
            del self._open[threading.current_thread()]

    def abort(self, thread: threading.Thread) -> None:
        """End the transaction of a thread that is late, wherever the thread is."""
        call = self._open.get(thread)
        if call is None:
            return
        with call.lock:
            call.aborted = True
            driver, call.driver = call.driver, None
            if driver is None:
                # It has none yet, or the call ends it just now.
                return
            call.ended = True
            try:
                self._dialect.abort(driver, self._catalog.engine)
            except SQLAlchemyError as error:
                _log.warning(
                    "the transaction of a late call goes on until the call ends: %s", error
                )
        # Free its place here: the late call may never return.
        self._free.release()

    @property
    def are_open(self) -> bool:
        """Whether a call has a transaction, or waits for one."""
        return bool(self._open)

    def close(self) -> None:
        """Close the connections; those of late calls are closed when the calls end."""
        connections.end(self._engine)

    def _try(self, batch: PoolBatch, call: _Call, arguments: tuple[Any, ...], ids: pa.Array) -> Any:
        with self._begun(batch, call) as connection:
            _here.error, _here.used = None, not self._dialect.writes_in_parallel
            try:
                _here.in_handler = True
                decision = interruptibly(self._handler, *arguments, connection)
            finally:
                _here.in_handler = False
            driver = connection.connection.driver_connection
            if _here.used and not self._dialect.in_transaction(driver):
                # The handler has ended the transaction through the driver's connection.
                raise BadOption(_ENDED)
            outcomes = self._outcomes(batch, decision, ids)
            if outcomes is not None:
                _settle(batch, connection, outcomes)
                # From now on, nobody else ends it.
                call.take()
                batch.decided.append(outcomes)
                connection.commit()
                batch.committed.append(ids)
            return decision

    def _is_in_the_way(self, error: Exception) -> bool:
        if isinstance(error, DBAPIError):
            return self._dialect.errors.can_retry(error)
        return isinstance(error, Conflict)

    def _outcomes(self, batch: PoolBatch, decision: Any, ids: pa.Array) -> pa.RecordBatch | None:
        """Return the outcomes of the messages of a call; None if it deletes none of them."""
        if decision is None:
            deleted = self._on_none == DELETE
        elif self._in_batches:
            return _of_batch(batch, decision, ids, self._on_none)
        else:
            deleted = isinstance(decision, bool | np.bool_) and bool(decision)
        return settlement_rows(ids, Verdicts.same(len(ids), DELETE)) if deleted else None

    @contextmanager
    def _begun(self, batch: PoolBatch, call: _Call) -> Iterator[Connection]:
        """Begin a transaction, which is rolled back unless the block commits it."""
        with batch.waiting():
            self._free.acquire()
        call.ended = False
        try:
            with self._connected() as connection:
                driver = connection.connection.driver_connection
                try:
                    with batch.waiting():
                        self._dialect.begin(connection, write=True)
                    call.give(driver)
                    yield connection
                finally:
                    # Nobody else uses the connection from now on.
                    with call.lock:
                        call.driver = None
                    if not self._rolled_back(driver) or call.ended:
                        # Another thread has ended its transaction, or it is lost.
                        with suppress(SQLAlchemyError):
                            connection.invalidate()
        finally:
            if not call.ended:
                self._free.release()
            if call.aborted:
                raise Superseded

    def _rolled_back(self, driver: Any) -> bool:
        """Roll back what is not committed; False if the connection is lost."""
        # SQLAlchemy does not know of a transaction that the handler has tried to end.
        try:
            driver.rollback()
        except self._engine.dialect.loaded_dbapi.Error:
            return False
        return True

    def _connected(self) -> Connection:
        try:
            return self._engine.connect()
        except DBAPIError as error:
            raise _NoConnection from error


class _Call:
    """A call of the handler, whose transaction another thread may end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        #: The driver's connection, while another thread may end its transaction.
        self.driver: Any = None
        #: Whether another thread has ended the transaction, and given up its place.
        self.ended = False
        #: Whether another thread goes on with the batch, so that this call changes nothing.
        self.aborted = False

    def give(self, driver: Any) -> None:
        """Let other threads end the transaction; raises `Superseded` if it must not begin."""
        with self.lock:
            if self.aborted:
                raise Superseded
            self.driver = driver

    def take(self) -> None:
        """Let nobody else end the transaction; raises `Superseded` if another thread has."""
        self.give(None)


def _of_batch(
    batch: PoolBatch, decision: Any, ids: pa.Array, on_none: str | None
) -> pa.RecordBatch | None:
    try:
        verdicts = Verdicts.of_batch(decision, len(ids), on_none, ids, batch.calls.of_error)
    except BadOutcome:
        return None
    if not pc.any(pc.equal(verdicts.outcomes, DELETE), min_count=0).as_py():
        return None
    if batch.source.is_sideline:
        # No message of a sideline is put off (`queue_core.handling.results`).
        verdicts = verdicts.at_once()
    return settlement_rows(ids, verdicts)


def _settle(batch: PoolBatch, connection: Connection, outcomes: pa.RecordBatch) -> None:
    """Settle the messages of a call in its transaction; raises `Uncommitted` if it cannot."""
    try:
        batch.source.settle_within(connection, pa.Table.from_batches([outcomes]))
    except NotHeld as error:
        # They were swept, or a commit succeeded whose answer was lost, or the handler settled them.
        _log.warning("%s", error)
        raise Uncommitted(
            "the rows of the call were rolled back, since the pool does not hold its messages any "
            "more: they were swept, or the handler has settled them itself; let the handler return "
            "True instead"
        ) from error
    except TransactionFailed as error:
        if _here.error is not None:
            # The handler has caught it, but the transaction cannot be committed.
            raise _here.error from None
        raise Uncommitted(
            "a statement of the handler has failed, so that its transaction cannot be committed; "
            "let the handler raise the error, or use a savepoint"
        ) from error


class _NoConnection(IgnisError):
    """The database cannot be reached."""


def _is_lost(error: Exception) -> bool:
    cause = error if isinstance(error, DBAPIError) else error.__cause__
    lost = isinstance(cause, DBAPIError) and cause.connection_invalidated
    return lost or isinstance(error, _NoConnection)


def _remember(context: ExceptionContext) -> None:
    _here.error = context.sqlalchemy_exception


_ENDED = (
    "a handler of a pool with transactional=True ends the transaction itself: remove its commit or "
    "rollback, return True to commit, and raise an error to roll back"
)


def _refuse_to_end(_: Connection) -> None:
    if getattr(_here, "in_handler", False):
        raise BadOption(_ENDED)


def _check_statement(_: Connection, __: Any, statement: str, *___: Any) -> None:
    """Refuse a statement that ends the transaction of a handler."""
    if getattr(_here, "in_handler", False):
        _here.used = True
        if _ENDS.match(statement):
            raise BadOption(_ENDED)
