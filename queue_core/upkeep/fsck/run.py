"""Check a store, repair it if wanted, and report what was found."""

from __future__ import annotations

import pyarrow as pa

from queue_core.catalog.checks.finding import report
from queue_core.catalog.checks.repair import repair as mend
from queue_core.catalog.database import Catalog
from queue_core.segments.storage import Storage
from queue_core.upkeep.fsck.check import THREADS, Progress, check


def fsck(
    catalog: Catalog,
    storage: Storage,
    *,
    deep: bool = False,
    repair: bool = False,
    threads: int = THREADS,
    progress: Progress | None = None,
) -> pa.Table:
    """Return what is wrong with a store, as rows of `FINDINGS`; raises `CatalogUnavailable`."""
    before = check(catalog, storage, deep=deep, threads=threads, progress=progress)
    if not repair:
        return report(before.findings, before.names)
    mend(catalog, before.findings)
    after = check(catalog, storage, deep=deep, threads=threads, progress=progress)
    left = {found.place for found in after.findings}
    repaired = [found for found in before.findings if found.place not in left]
    return report(after.findings, after.names, repaired)
