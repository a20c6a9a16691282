"""A stream of side tasks without Spark: its driver, and the work of its executors."""

import pyarrow as pa

from ignis_source.options import SourceOptions
from ignis_source.partition import TablePartition
from ignis_source.task_partition import do_runs
from ignis_source.task_session import TaskSession
from queue_core.values.ipc import unpack
from tests import factories

#: Due whenever somebody looks.
ALWAYS = {"interval": "0", "idleWait": "2s"}


class Stream:
    """A driver, and executors that do its batches."""

    def __init__(self, store, task, options):
        given = {"catalog": store.address.catalog, "storage": store.address.storage, "task": task}
        self.session = TaskSession(SourceOptions.of(given | options))

    def told(self, start, end):
        return told(self.session, start, end)


def told(session, start, end):
    """Do the work of a batch as executors do; return its rows."""
    tables = [
        unpack(partition.arrow)
        if isinstance(partition, TablePartition)
        else do_runs(session.options, partition)
        for partition in session.plan(start, end)
    ]
    rows = pa.concat_tables(tables).select(["task", "queue", "moved"]).to_pylist()
    return [tuple(row.values()) for row in rows]


def with_sidelined(store, count=5, name="orders", retry=None, **settings):
    """A queue whose messages the shovel brings back."""
    return factories.with_sidelined(store, count, name, retry=retry, **settings)
