"""A queue's settings become the spec of its segments."""

import pyarrow as pa

from queue_core.segments.staging_spec import StagingSpec
from queue_core.values.model import QueueInfo
from queue_core.values.settings import QueueSettings

SCHEMA = pa.schema([("key", pa.string()), ("urgency", pa.int32())])


def test_the_spec_of_a_queue_has_what_a_stager_needs():
    queue = QueueInfo(
        id=1,
        name="orders",
        shards=3,
        key="key",
        schema=SCHEMA,
        schema_version=2,
        settings=QueueSettings(attributes=("key",), categories=("key",), priority="urgency"),
        created_at=0,
    )

    assert StagingSpec.of(queue) == StagingSpec(
        queue="orders",
        schema=SCHEMA,
        schema_version=2,
        shards=3,
        key="key",
        # Of the priority too: firings evaluate it.
        attributes=("key", "urgency"),
        categories=("key",),
        compression=queue.settings.compression,
    )
