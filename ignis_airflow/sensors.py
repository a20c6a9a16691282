"""`QueueEmptySensor`: a task of a DAG that waits until a queue is empty."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseSensorOperator

from ignis_airflow.triggers import EmptyTrigger
from queue_core.store import Store
from queue_core.values.address import Address, handed_on


class QueueEmptySensor(BaseSensorOperator):
    """
    Waits until nothing of a queue is left to handle.

    The queue is empty when no message waits, is in flight at any consumer, or is in the sideline
    and will be tried again. Dead messages do not count: they wait for a person. Messages that are
    loaded afterwards are not waited for.

    Args:
        queue_name: The name of the queue.
        path: Folder of an embedded store. Without an address, the environment variables of
            `Store.open` give it: in the worker and, with *deferrable*, also in the triggerer.
        catalog: Database URL of the catalog, with *storage*.
        storage: Folder or URI of the segment files.
        deferrable: Whether to wait in the triggerer, without a slot of a worker. By default, as
            Airflow's setting ``default_deferrable`` says.
        kwargs: As for all sensors of Airflow, such as ``mode="reschedule"`` and ``timeout``.

    Raises:
        NoSuchQueue: The store has no queue of that name.
    """

    template_fields: Sequence[str] = ("queue_name", "path", "catalog", "storage")

    def __init__(
        self,
        *,
        queue_name: str,
        path: str | None = None,
        catalog: str | None = None,
        storage: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_name = queue_name
        self.path, self.catalog, self.storage = path, catalog, storage
        self.deferrable = deferrable

    def poke(self, context: Any) -> bool:
        """Return whether the queue is empty."""
        # Not at the top: the process that reads DAGs looks at no queue.
        from ignis_airflow.watcher import look

        address = Address.of(self.path, catalog=self.catalog, storage=self.storage)
        with Store(address, create=False) as store:
            name = store.queue(self.queue_name).name
            found = look(store, {name})[name]
            is_empty = found.is_empty
        self.log.info("queue %s: %d messages to handle", name, found.unfinished)
        return is_empty

    def execute(self, context: Any) -> Any:
        """Wait, in the triggerer if the sensor is deferrable."""
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            # The triggerer has another working directory.
            path = handed_on(self.path, None, None)["path"] if self.path else None
            self.defer(
                trigger=EmptyTrigger(self.queue_name, path, self.catalog, self.storage),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout),
            )
        return None

    def execute_complete(self, context: Any, event: Any) -> None:
        """Go on, after the trigger has found the queue empty."""
