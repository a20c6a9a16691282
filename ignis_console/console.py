"""The console's parts, which every page and action uses."""

from __future__ import annotations

import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from ignis_console import redrives
from ignis_console.action_log import ActionLog
from ignis_console.auth import Auth
from ignis_console.config import ConsoleOptions
from ignis_console.details import Details, read_queue, read_sideline
from ignis_console.facets import Sample, sample
from ignis_console.redrives import Redrive
from ignis_console.shared import Look, Remembered, Shared
from queue_core.errors import CatalogUnavailable, IgnisError
from queue_core.store import Store
from queue_core.support.collector import pass_over_all
from queue_core.values.rows import Numbers
from queue_core.verbs.operator.chosen import Chosen, number_of
from queue_core.watching import prometheus
from queue_core.watching.present import Figures, FiguresReader
from queue_core.watching.problem_kinds import Problem, ProblemGroup, grouped
from queue_core.watching.problems import find

#: Seconds for which the figures of the store, a queue, and its sideline are shown before they are
#: read again. On PostgreSQL, each reading counts as two transactions: the test of the connection is
#: one.
FIGURES_SECONDS = 3.0
QUEUE_SECONDS = 3.0
SIDELINE_SECONDS = 5.0
#: Figures of the store of this age are not shown as present ones: the page waits for new ones.
STALE_SECONDS = 8.0
#: Seconds after an action for which its queue is read at the full rate, whatever else is shown.
HASTY_SECONDS = 60.0
#: Seconds for which scrapes get the same metrics.
METRICS_SECONDS = 1.0
#: Actions at the same time. A pool has 15 connections.
ACTIONS = 4
#: The most messages that all counts of actions remember together, 8 bytes for each.
MOST_COUNTED = 4_000_000
#: The most refusals of actions that are remembered until their page has shown them.
MOST_REFUSALS = 1000


class Overview(NamedTuple):
    """The whole store at one moment."""

    figures: Figures
    #: The worst first.
    problems: list[Problem]
    groups: list[ProblemGroup]


class Console:
    """A store, and what the console remembers of it."""

    def __init__(self, store: Store, options: ConsoleOptions) -> None:
        self.store = store
        self.options = options
        self.auth = Auth(options)
        self.log = ActionLog(options.action_log)
        self._reader = FiguresReader(store.catalog, store.storage)
        #: In threads of their own, so that pages always find a connection.
        self.actions = ThreadPoolExecutor(ACTIONS, "ignis-action")
        #: The messages that an action has counted, as a page or a script has been shown.
        #: A count of few messages needs room too.
        self.counted: Remembered[Chosen] = Remembered(
            MOST_COUNTED, lambda chosen: number_of(chosen) + 100
        )
        #: Why an action has changed nothing, until its page shows it.
        self.refusals: Remembered[str] = Remembered(MOST_REFUSALS)
        self._overviews: Shared[Overview] = Shared(FIGURES_SECONDS)
        self._queues: Shared[Details] = Shared(QUEUE_SECONDS)
        self._sidelines: Shared[tuple[int, pa.Table, pa.Table]] = Shared(SIDELINE_SECONDS)
        self._samples: Shared[Sample] = Shared(SIDELINE_SECONDS)
        self._redrives: Shared[tuple[int, tuple[Redrive, ...]]] = Shared(QUEUE_SECONDS)
        #: When a person last acted on a queue.
        self._acted: dict[str, float] = {}
        self._metrics: Shared[str] = Shared(METRICS_SECONDS)

    def prepare(self) -> None:
        """Make the first page quick; for a process of its own."""
        pass_over_all()
        with suppress(IgnisError):
            self.overview()

    def overview(self) -> Look[Overview]:
        """Return the figures of the store and their problems, at most some seconds old."""
        # Each page shows the number of problems: it must not wait for a reading or show an old one.
        return self._overviews.get("", self._read_overview, hasty=True, patience=STALE_SECONDS)

    def _read_overview(self) -> Overview:
        figures = self._reader.read()
        problems = find(figures, self.options.oldest_wanted)
        return Overview(figures, problems, grouped(problems))

    def queue(self, name: str, span: str) -> Look[Details]:
        """Return a queue in detail, at most some seconds old."""
        return self._queues.get(
            (name, span), lambda: read_queue(self.store, name, span), hasty=self._in_haste(name)
        )

    def sideline(self, queue: str) -> Look[tuple[int, pa.Table, pa.Table]]:
        """Return the sideline of a queue and its traces, at most some seconds old."""
        return self._sidelines.get(
            queue, lambda: read_sideline(self.store, queue), hasty=self._in_haste(queue)
        )

    def sample(self, queue: str, group: Hashable, members: Numbers, shown: Numbers) -> Sample:
        """Return a sample of a group of the sideline, at most some seconds old."""

        def read() -> Sample:
            return sample(self.store.queue(queue), members, shown)

        return self._samples.get((queue, group), read, hasty=self._in_haste(queue)).seen

    def redrives(self) -> Look[tuple[int, tuple[Redrive, ...]]]:
        """Return the catalog's time and the redrives of the store, at most some seconds old."""
        return self._redrives.get("", lambda: redrives.read(self.store))

    def metrics(self) -> str:
        """Return the metrics of the store for Prometheus, at most some seconds old."""
        look = self._metrics.get("", lambda: prometheus.page(self.store))
        if look.error is not None:
            # Prometheus would take former figures for present ones.
            raise CatalogUnavailable(look.error)
        return look.seen

    def problem_count(self) -> int | None:
        """Return the number of problems, or None while the figures cannot be read."""
        try:
            return len(self.overview().seen.problems)
        except IgnisError:
            return None

    def _in_haste(self, queue: str) -> bool:
        return time.monotonic() - self._acted.get(queue, -HASTY_SECONDS) < HASTY_SECONDS

    def changed(self, queue: str) -> None:
        """Forget what was read before an action on a queue."""
        self._acted[queue] = time.monotonic()
        kept = (self._overviews, self._queues, self._sidelines, self._samples, self._redrives)
        for each in (*kept, self._metrics):
            each.forget()

    def close(self) -> None:
        """Wait for the actions under way, and close the log."""
        self.actions.shutdown()
        self.log.close()
