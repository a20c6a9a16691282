"""`ConsumerPool`: handlers in a plain Python process, for those who have no Spark query."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from queue_core.catalog import interests
from queue_core.consumers.consumer import Hold
from queue_core.errors import BadOption, IgnisError, Unavailable
from queue_core.handlers.contract import Contract, Ignorable
from queue_core.handlers.handler import BatchHandler, Handling, RowHandler
from queue_core.model import magazine_of
from queue_core.names import of_process
from queue_core.pool.config import PoolConfig, checked
from queue_core.pool.credit import Credit
from queue_core.pool.dispatcher import close_dispatcher, open_dispatcher
from queue_core.pool.pressure import Pressure
from queue_core.pool.source import AcquiringSource, BrowsingSource, MessageSource
from queue_core.pool.worker import WorkerContext
from queue_core.pool.workers import Workers
from queue_core.presence.presence import Presence

if TYPE_CHECKING:
    from queue_core.store import Store

#: Messages that are fired, handed to a batch handler and settled at once.
BATCH = 100
#: Seconds that `stop` waits for handlers.
STOP_SECONDS = 30.0


class ConsumerPool(AbstractContextManager["ConsumerPool"]):
    """
    Handlers of one or several queues, in threads of this process: ``with ConsumerPool(…):``.

    *handler* and its arguments are those of `pyspark_ignis.consume`: a function of one message, a
    dict, that returns a bool, or one marked by `batch_handler`. True deletes the message, all else
    sidelines it, an *ignorable* exception deletes. Each of *concurrency* workers, by default as
    many as the queues' settings say, fires *batch* messages at once, handles them, settles them at
    once, and rests only when there are none; it is woken by the next arrival.

    *priority*: while a consumer of a higher one wants messages of a queue, in whatever process,
    this pool gets none of it; none goes before all. *max_in_flight*: so many messages are fired and
    not settled at most; where that is reached, lower priorities go. *exclusive*: nobody else
    consumes the queues. *single_active*: of all who say so, one does, and the others are its
    spares. *browse*: every message is shown once, and none is taken. *pressure* holds this pool and
    others of the process (`Pressure`). *name* is the consumer's; a named browser goes on where it
    ended.

    Raises `BadOption`, `BadSelector`, `NoSuchQueue`, `QueueTaken`, `SchemaMismatch`.
    """

    def __init__(
        self,
        store: Store,
        queue: str | Sequence[str],
        handler: RowHandler | BatchHandler,
        *,
        concurrency: int | None = None,
        batch: int = BATCH,
        ignorable: Ignorable = (),
        handler_timeout: float | None = None,
        payload: str | None = None,
        payload_type: type | None = None,
        with_metadata: bool = False,
        columns: Sequence[str] | None = None,
        magazine: str = "main",
        selector: str | None = None,
        order_by: str | None = None,
        priority: int | None = None,
        max_in_flight: int | None = None,
        exclusive: bool = False,
        single_active: bool = False,
        browse: bool = False,
        pressure: Pressure | None = None,
        name: str | None = None,
    ) -> None:
        contract = Contract.of(ignorable, handler_timeout, payload, payload_type, with_metadata)
        self._order = checked(
            PoolConfig(
                queues=[
                    store.queue(each) for each in ([queue] if isinstance(queue, str) else queue)
                ],
                handler=handler,
                payload=contract.payload,
                columns=columns,
                concurrency=concurrency,
                batch=batch,
                magazine=magazine,
                selector=selector,
                order_by=order_by,
                priority=priority,
                max_in_flight=max_in_flight,
                exclusive=exclusive,
                single_active=single_active,
                browse=browse,
            )
        )
        self._store = store
        self._infos = [each.info for each in self._order.queues]
        self._timeout = contract.timeout_for(self._infos)
        self._handling = Handling(handler, contract.ignorable, None, contract.payload)
        self._pressure = pressure
        self._name = name
        self._credit = Credit(max_in_flight, self._credit_changed)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._paused = False
        self._ended = threading.Event()
        self._presence: Presence | None = None
        self._duty: WorkerContext | None = None
        self._crew: Workers | None = None
        #: What ended the pool before its time.
        self.error: BaseException | None = None

    def start(self) -> ConsumerPool:
        """Begin to work; `with` does it."""
        order = self._order
        self._presence = Presence(
            self._store.catalog,
            self._store.consumer(self._name or f"pool:{of_process()}", beats=True),
            [info.id for info in self._infos],
            lambda _: self._is_interested(),
            priority=order.priority,
            claim=order.claim,
        )
        desks = [open_dispatcher(self._store.catalog, info) for info in self._infos]
        self._duty = WorkerContext(
            name=self._presence.consumer.name,
            sources={
                desk: self._taking(queue) for desk, queue in zip(desks, order.queues, strict=True)
            },
            handling=self._handling,
            batch=order.batch,
            priority=order.priority,
            yields=order.priority is not None or order.single_active,
            acquires=not order.browse,
            selective=order.selector is not None,
            credit=self._credit,
            pressure=self._pressure,
            count=self._count,
            fail=self._fail,
        )
        self._crew = Workers(self._duty)
        self._ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(self._ended,), daemon=True)
        watching.start()
        self._crew.grow(order.workers)
        return self

    @property
    def concurrency(self) -> int:
        """How many workers there are."""
        return 0 if self._crew is None else len(self._crew)

    @property
    def counts(self) -> dict[str, int]:
        """How many messages were ``deleted``, ``sidelined``, ``ignored`` and ``reloaded``."""
        with self._lock:
            return dict(self._counts)

    def increase(self, by: int = 1) -> int:
        """More workers, up to 100 in all; how many there are then."""
        return self._begun.grow(by)

    def decrease(self, by: int = 1) -> int:
        """Fewer workers, each of which ends with the batch in its hands; how many are left."""
        return self._begun.shrink(by)

    def pause(self) -> None:
        """Fire nothing more, until `resume`; what is in hand is finished."""
        self._paused = True
        self._begun.hold(Hold.FLOW, held=True)

    def resume(self) -> None:
        """Go on."""
        self._paused = False
        self._begun.hold(Hold.FLOW, held=False)

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; False when that takes longer. Raises what failed."""
        end = None if timeout is None else time.monotonic() + timeout
        self._begun.look()
        while not self._is_idle():
            if self._ended.wait(0.01) or (end is not None and time.monotonic() > end):
                self._raise()
                return self._is_idle()
        self._raise()
        return True

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """
        Stop working: what is in hand is finished.

        After *timeout* seconds, what is not handled goes back to its place, except for what a
        handler works on just then: it is handled twice. Raises what had ended the pool before.
        """
        if self._presence is None:
            return
        self._begun.dismiss(timeout)
        self._ended.set()
        self._give_back()
        for info in self._infos:
            close_dispatcher(self._store.catalog, info)
        self._presence.leave()
        self._presence = None
        self._raise()

    def __enter__(self) -> ConsumerPool:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            self.stop()
        except IgnisError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        names = ", ".join(info.name for info in self._infos)
        ended = f", ended by {self.error!r}" if self.error is not None else ""
        return (
            f"<ConsumerPool of {names}: {self.concurrency} workers, {self._credit.used} messages "
            f"in hand{ended}>"
        )

    def _taking(self, queue: Any) -> MessageSource:
        assert self._presence is not None, "who takes is present"
        order, consumer = self._order, self._presence.consumer
        if order.browse:
            return BrowsingSource(queue, consumer, order.read, magazine_of(order.magazine))
        return AcquiringSource(
            queue,
            consumer,
            order.read,
            magazine=order.magazine,
            selector=order.selector,
            order_by=order.order_by,
            ahead=order.may_fire_ahead,
        )

    def _is_interested(self) -> bool:
        """Whether it would take messages, or was short of credit only for a moment."""
        pressed = self._pressure is not None and self._pressure.applied
        held = self._paused or pressed or not self.concurrency
        return not held and self._credit.missing_for() < interests.BEAT_SECONDS

    def _give_back(self) -> None:
        """What was fired ahead, and nobody will handle now, goes back to its place."""
        if self._duty is not None:
            for taking in self._duty.sources.values():
                taking.give_back()

    def _is_idle(self) -> bool:
        return self._begun.has_looked and self._credit.used == 0

    def _credit_changed(self, left: bool) -> None:
        self._begun.hold(Hold.CREDIT, held=not left)

    @property
    def _begun(self) -> Workers:
        if self._crew is None:
            raise BadOption("the pool has not begun: use it in a with statement, or start it")
        return self._crew

    def _count(self, outcomes: Counter[str]) -> None:
        with self._lock:
            self._counts += outcomes

    def _fail(self, error: BaseException) -> None:
        """Nothing more can be done: all workers end."""
        if self.error is None:
            self.error = error
        self._begun.end()
        self._ended.set()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    def _watch(self, ended: threading.Event) -> None:
        """Give up calls that take too long; find out when another one has this consumer's name."""
        pause = min(self._timeout / 4, 1.0)
        while not ended.wait(pause):
            presence = self._presence
            try:
                if presence is not None:
                    presence.check()
                if not self._is_interested():
                    self._give_back()
            except Unavailable:
                continue
            except IgnisError as error:
                self._fail(error)
            self._begun.give_up_after(self._timeout)
