"""Trials: an executor notes in the storage that suspects are about to reach a handler.

A query that ends in the middle of a batch has perhaps called no handler. Executors have no catalog,
so they leave a file in the storage when they read suspects. The next life of the query counts a
loss of suspects only if it finds this file (`queue_core.verbs.abandon`). Otherwise, a query that
fails at each start for another reason would accuse innocent messages. The vacuum removes old files.
"""

from __future__ import annotations

import logging

from queue_core.errors import DamagedSegment, StorageUnavailable
from queue_core.segments.storage import Storage
from queue_core.values.model import ReadPlan, SegmentRef

_log = logging.getLogger(__name__)


def begin(storage: Storage, plan: ReadPlan) -> None:
    """
    Note that the trial of a plan begins, if it is one, and if its messages can be read.

    Raises `StorageUnavailable` if the storage is not there.
    """
    if plan.trial is None:
        return
    # Not after the first messages were decoded: that can end the process, too.
    first = next(iter(plan.tasks), None)
    if first is None or not _is_there(storage, first.segment):
        return
    try:
        storage.note_trial(plan.trial)
    except StorageUnavailable as error:
        # The messages can be handled all the same.
        _log.warning("the search for messages that kill cannot go on, because %s", error)


def _is_there(storage: Storage, segment: SegmentRef) -> bool:
    if segment.data is not None:
        return True
    try:
        with storage.opened(segment.name):
            return True
    except DamagedSegment:
        # Whoever reads it reports that.
        return False
