"""The console's parts, which every page and action uses."""

from __future__ import annotations

import gc
import time
from contextlib import suppress

from ignis_console import sideline_view
from ignis_console.action_log import ActionLog
from ignis_console.auth import Auth
from ignis_console.config import ConsoleOptions
from ignis_console.details import QueueReading, read_queue
from ignis_console.figures import Figures
from ignis_console.look import Look
from ignis_console.places import Places
from ignis_console.poller import Poller
from ignis_console.problems import Problem, find
from ignis_console.remembered import Remembered
from ignis_console.shared import Shared
from ignis_console.sideline_view import SidelineView
from ignis_console.snapshot import SnapshotReader
from ignis_console.under_way import LongActions
from queue_core.errors import CatalogUnavailable, IgnisError
from queue_core.store import Store
from queue_core.values.rows import Numbers
from queue_core.watching import prometheus

#: Seconds for which a queue, and its sideline, are shown before they are read again. On PostgreSQL,
#: each reading counts as two transactions: the test of the connection is one.
QUEUE_SECONDS = 3.0
SIDELINE_SECONDS = 5.0
#: Seconds after an action in which its queue is read as often, however many others are looked at.
HASTY_SECONDS = 60.0
#: Seconds for which scrapes get the same metrics.
METRICS_SECONDS = 1.0
#: Actions at the same time, and the seconds that a further one waits. A pool has 15 connections.
ACTIONS = 4
ACTION_PATIENCE = 1.0
#: The most messages that all counts of actions remember together, 8 bytes for each.
MOST_COUNTED = 4_000_000
#: The most refusals of actions that are remembered until their page has shown them.
MOST_REFUSALS = 1000


class Console:
    """A store, and what the console remembers of it."""

    def __init__(self, store: Store, options: ConsoleOptions) -> None:
        self.store = store
        self.options = options
        self.auth = Auth(options)
        self.log = ActionLog(options.action_log)
        self.poller = Poller(SnapshotReader(store.catalog).read)
        self.places = Places(ACTIONS, ACTION_PATIENCE)
        self.long_actions = LongActions()
        #: The ids of messages that an action has counted, as a page or a script has been shown.
        self.counted: Remembered[Numbers] = Remembered(MOST_COUNTED, _room)
        #: Why an action has changed nothing, until its page shows it.
        self.refusals: Remembered[str] = Remembered(MOST_REFUSALS)
        self._found: tuple[Figures, list[Problem]] | None = None
        self._queues: Shared[QueueReading] = Shared(QUEUE_SECONDS)
        self._sidelines: Shared[SidelineView] = Shared(SIDELINE_SECONDS)
        #: When somebody acted on a queue last.
        self._acted: dict[str, float] = {}
        self._metrics: Shared[str] = Shared(METRICS_SECONDS)

    def prepare(self) -> None:
        """Make the first page quick, without waiting; for a process of its own."""
        # A collection that looks through all that the imports left takes 20 to 80 ms, and may come
        # within a transaction.
        gc.collect()
        gc.freeze()
        self.poller.prepare()

    def queue(self, name: str, span: str) -> Look[QueueReading]:
        """Return a queue in detail, at most some seconds old."""
        return self._queues.get(
            (name, span), lambda: read_queue(self.store, name, span), hasty=self._in_haste(name)
        )

    def sideline(self, queue: str) -> Look[SidelineView]:
        """Return the view ``sideline`` of a queue, at most some seconds old."""
        return self._sidelines.get(
            queue, lambda: sideline_view.read(self.store, queue), hasty=self._in_haste(queue)
        )

    def metrics(self) -> str:
        """Return the metrics of the store for Prometheus, at most a second old."""
        look = self._metrics.get("", lambda: prometheus.page(self.store.catalog))
        if look.error is not None:
            # Prometheus would take former figures for present ones.
            raise CatalogUnavailable(look.error)
        return look.seen

    def problems(self, figures: Figures) -> list[Problem]:
        """Return the problems that some figures show, the worst first."""
        found = self._found
        if found is None or found[0] is not figures:
            found = self._found = (figures, find(figures, self.options.oldest_wanted))
        return found[1]

    def problem_count(self) -> int | None:
        """Return the number of problems, or None while the figures cannot be read."""
        try:
            return len(self.problems(self.poller.look().seen))
        except IgnisError:
            return None

    def _in_haste(self, queue: str) -> bool:
        return time.monotonic() - self._acted.get(queue, -HASTY_SECONDS) < HASTY_SECONDS

    def changed(self, queue: str) -> None:
        """Forget what was read before an action, and wait until the figures follow it."""
        self._acted[queue] = time.monotonic()
        self._queues.forget()
        self._sidelines.forget()
        self._metrics.forget()
        with suppress(IgnisError):
            self.poller.look(fresh=True)

    def close(self) -> None:
        """Wait for the actions under way, and end the poller and the log."""
        self.long_actions.close()
        self.poller.close()
        self.log.close()


def _room(ids: Numbers) -> int:
    # A count of few messages needs room too.
    return len(ids) + 100
