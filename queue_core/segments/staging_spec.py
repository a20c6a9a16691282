"""How rows of a queue become segments: plain values, which are sent to the writing tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from queue_core.values.column_roles import described
from queue_core.values.model import QueueInfo
from queue_core.values.settings import QueueSettings
from queue_core.values.weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingSpec:
    """The properties of a queue that a `Stager` needs."""

    queue: str
    schema: pa.Schema
    schema_version: int
    shards: int
    #: Column whose hash picks the shard.
    key: str | None
    #: Columns whose statistics each slice keeps.
    attributes: tuple[str, ...] = ()
    #: Columns whose values get their own slices.
    categories: tuple[str, ...] = ()
    compression: str | None = None
    #: The column whose values take turns, and their weights.
    fair_by: str | None = None
    fair_weights: Weights = ()

    @property
    def looks_at_values(self) -> bool:
        """Whether values of other columns than the key decide how rows are staged."""
        return bool(self.attributes or self.categories or self.fair_by is not None)

    @classmethod
    def of(cls, queue: QueueInfo) -> StagingSpec:
        """Return the spec that the settings of a queue describe."""
        spec = cls(
            queue=queue.name,
            schema=queue.schema,
            schema_version=queue.schema_version,
            shards=queue.shards,
            key=queue.key,
        )
        return spec.with_settings(queue.settings)

    def with_settings(self, settings: QueueSettings) -> StagingSpec:
        """Return the spec of a queue with these settings."""
        return replace(
            self,
            attributes=described(settings, self.schema),
            categories=settings.categories,
            compression=settings.compression,
            fair_by=settings.fair_by,
            fair_weights=settings.fair_weights,
        )
