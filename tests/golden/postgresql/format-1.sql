-- The tables of format 1 on PostgreSQL, as the last ignis that wrote it created them.

CREATE TABLE facts (
    name VARCHAR(64) NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE queues (
    id BIGSERIAL NOT NULL,
    name VARCHAR(128) NOT NULL,
    shards INTEGER NOT NULL,
    key_column VARCHAR(255),
    schema_version INTEGER NOT NULL,
    settings TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deactivated_at BIGINT,
    PRIMARY KEY (id),
    UNIQUE (name)
);

CREATE TABLE schemas (
    queue_id BIGINT NOT NULL,
    version INTEGER NOT NULL,
    arrow BYTEA NOT NULL,
    PRIMARY KEY (queue_id, version)
);

CREATE TABLE shards (
    queue_id BIGINT NOT NULL,
    magazine SMALLINT NOT NULL,
    shard INTEGER NOT NULL,
    load_pointer BIGINT NOT NULL,
    loaded BIGINT NOT NULL,
    PRIMARY KEY (queue_id, magazine, shard)
);

CREATE TABLE turns (
    queue_id BIGINT NOT NULL,
    magazine SMALLINT NOT NULL,
    shard INTEGER NOT NULL,
    fire_pointer BIGINT NOT NULL,
    fired BIGINT NOT NULL,
    PRIMARY KEY (queue_id, magazine, shard)
);

CREATE TABLE counters (
    queue_id BIGINT NOT NULL,
    magazine SMALLINT NOT NULL,
    shard INTEGER NOT NULL,
    reloaded BIGINT NOT NULL,
    deleted BIGINT NOT NULL,
    sidelined BIGINT NOT NULL,
    shovelled BIGINT NOT NULL,
    swept BIGINT NOT NULL,
    damaged BIGINT NOT NULL,
    expired BIGINT NOT NULL,
    ignored BIGINT NOT NULL,
    replaced BIGINT NOT NULL,
    dropped BIGINT NOT NULL,
    sweep_pointer BIGINT NOT NULL,
    PRIMARY KEY (queue_id, magazine, shard)
);

CREATE TABLE segments (
    id BIGSERIAL NOT NULL,
    queue_id BIGINT NOT NULL,
    schema_version INTEGER NOT NULL,
    location VARCHAR(400),
    data BYTEA,
    rows INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    chunks BYTEA NOT NULL,
    loaded_at BIGINT NOT NULL,
    PRIMARY KEY (id)
);

CREATE UNIQUE INDEX segments_by_location ON segments (location) WHERE location IS NOT NULL;

CREATE TABLE compactions (
    segment_id BIGINT NOT NULL,
    queue_id BIGINT NOT NULL,
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    arrow BYTEA NOT NULL,
    PRIMARY KEY (segment_id)
);

CREATE INDEX compactions_by_ids ON compactions (queue_id, last_id);

CREATE TABLE files (
    location VARCHAR(400) NOT NULL,
    state VARCHAR(16) NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (location)
);

CREATE TABLE slices (
    id BIGSERIAL NOT NULL,
    queue_id BIGINT NOT NULL,
    magazine SMALLINT NOT NULL,
    shard INTEGER NOT NULL,
    state SMALLINT NOT NULL,
    position BIGINT NOT NULL,
    segment_id BIGINT NOT NULL,
    row_start INTEGER NOT NULL,
    row_stop INTEGER NOT NULL,
    bitmap BYTEA,
    count INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    loaded_at BIGINT NOT NULL,
    moved_at BIGINT NOT NULL,
    consumer_id BIGINT,
    ticket BIGINT,
    fired_at BIGINT,
    stats TEXT,
    PRIMARY KEY (id)
);

CREATE INDEX slices_in_order ON slices (queue_id, magazine, state, shard, position, bytes);

CREATE INDEX slices_of_ticket ON slices (consumer_id, ticket) WHERE consumer_id IS NOT NULL;

CREATE INDEX slices_of_segment ON slices (segment_id);

CREATE TABLE consumers (
    id BIGSERIAL NOT NULL,
    name VARCHAR(200) NOT NULL,
    epoch BIGINT NOT NULL,
    last_ticket BIGINT NOT NULL,
    acknowledged BIGINT NOT NULL,
    heartbeat_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);

CREATE TABLE interests (
    queue_id BIGINT NOT NULL,
    consumer_id BIGINT NOT NULL,
    priority INTEGER,
    claim VARCHAR(16) NOT NULL,
    interested BOOLEAN NOT NULL,
    registered_at BIGINT NOT NULL,
    PRIMARY KEY (queue_id, consumer_id)
);

CREATE INDEX interests_of_consumer ON interests (consumer_id);

CREATE TABLE tickets (
    consumer_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    fired_at BIGINT NOT NULL,
    planned_at BIGINT,
    lives INTEGER DEFAULT '0' NOT NULL,
    planned_epoch BIGINT,
    browsed TEXT,
    PRIMARY KEY (consumer_id, number)
);

CREATE TABLE publications (
    queue_id BIGINT NOT NULL,
    query_id VARCHAR(200) NOT NULL,
    batch_id BIGINT NOT NULL,
    published_at BIGINT NOT NULL,
    PRIMARY KEY (queue_id, query_id)
);

CREATE TABLE failures (
    id BIGSERIAL NOT NULL,
    queue_id BIGINT NOT NULL,
    failed_at BIGINT NOT NULL,
    consumer VARCHAR(200),
    arrow BYTEA NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX failures_of_queue ON failures (queue_id, failed_at);

CREATE TABLE reports (
    id BIGSERIAL NOT NULL,
    queue_id BIGINT NOT NULL,
    task VARCHAR(32) NOT NULL,
    at BIGINT NOT NULL,
    arrow BYTEA NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX reports_of_task ON reports (task, id);

CREATE TABLE schedule (
    queue_id BIGINT NOT NULL,
    task VARCHAR(32) NOT NULL,
    begun_at BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    PRIMARY KEY (queue_id, task)
);

CREATE TABLE lines (
    id BIGSERIAL NOT NULL,
    queue_id BIGINT NOT NULL,
    side VARCHAR(8) NOT NULL,
    joined_at BIGINT NOT NULL,
    alive_until BIGINT NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX lines_in_order ON lines (queue_id, side, id);

CREATE TABLE dedup (
    id BIGSERIAL NOT NULL,
    queue_id BIGINT NOT NULL,
    loaded_at BIGINT NOT NULL,
    known_until BIGINT NOT NULL,
    count BIGINT NOT NULL,
    arrow BYTEA NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX dedup_of_queue ON dedup (queue_id, loaded_at);

CREATE TABLE leases (
    role VARCHAR(64) NOT NULL,
    holder VARCHAR(200) NOT NULL,
    term BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (role)
);
