"""The console's parts, which every page and action uses."""

from __future__ import annotations

import pyarrow as pa

from ignis_console.action_log import ActionLog
from ignis_console.auth import Auth
from ignis_console.config import ConsoleOptions
from ignis_console.details import Details, read_details
from ignis_console.figures import Figures
from ignis_console.places import Places
from ignis_console.poller import Poller
from ignis_console.problems import Problem, find
from ignis_console.shared import Shared
from ignis_console.snapshot import SnapshotReader
from queue_core.errors import IgnisError
from queue_core.monitoring import prometheus
from queue_core.store import Store

#: Seconds for which the details of a queue, and its sideline, are shown before they are read again.
DETAILS_SECONDS = 3.0
SIDELINE_SECONDS = 5.0
#: Seconds for which scrapes get the same metrics.
METRICS_SECONDS = 1.0
#: Actions at the same time, and the seconds that a further one waits. A pool has 15 connections.
ACTIONS = 4
ACTION_PATIENCE = 1.0


class Console:
    """A store, and what the console remembers of it."""

    def __init__(self, store: Store, options: ConsoleOptions) -> None:
        self.store = store
        self.options = options
        self.auth = Auth(options)
        self.log = ActionLog(options.action_log)
        self.poller = Poller(SnapshotReader(store.catalog).read)
        self.places = Places(ACTIONS, ACTION_PATIENCE)
        self._found: tuple[Figures, list[Problem]] | None = None
        self._details: Shared[Details] = Shared(DETAILS_SECONDS)
        self._sidelines: Shared[pa.Table] = Shared(SIDELINE_SECONDS)
        self._metrics: Shared[str] = Shared(METRICS_SECONDS)

    def details(self, queue: str, span: str) -> Details:
        """Return a queue in detail, at most some seconds old."""
        return self._details.get((queue, span), lambda: read_details(self.store, queue, span))

    def sideline(self, queue: str) -> pa.Table:
        """Return the view ``sideline`` of a queue, at most some seconds old."""
        return self._sidelines.get(queue, lambda: self.store.view("sideline", queue))

    def metrics(self) -> str:
        """Return the metrics of the store for Prometheus, at most some seconds old."""
        return self._metrics.get("", lambda: prometheus.page(self.store.catalog))

    def problems(self) -> list[Problem]:
        """Return the problems of the store, the worst first."""
        figures = self.poller.look().figures
        found = self._found
        if found is None or found[0] is not figures:
            found = self._found = (figures, find(figures, self.options.oldest_wanted))
        return found[1]

    def problem_count(self) -> int | None:
        """Return the number of problems, or None while the figures cannot be read."""
        try:
            return len(self.problems())
        except IgnisError:
            return None

    def changed(self) -> None:
        """Forget what was read before an action, and wait until the figures follow it."""
        self._details.forget()
        self._sidelines.forget()
        self._metrics.forget()
        self.poller.look(fresh=True)

    def close(self) -> None:
        """End the poller and the log."""
        self.poller.close()
        self.log.close()
