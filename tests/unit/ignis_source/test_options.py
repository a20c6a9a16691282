"""The options of the source: parsed, defaulted, and refused all at once."""

import pytest

from ignis_source.options import OPTIONS, SourceOptions
from queue_core.errors import BadName, BadOption
from queue_core.upkeep.tasks.registry import REGISTRY, TASKS
from queue_core.values.address import Address
from queue_core.values.model import Magazine


def options(**given):
    return SourceOptions.of({"path": "/shop", "queue": "orders"} | given)


def test_without_options_a_source_reads_main_and_deletes_what_is_committed():
    assert options() == SourceOptions(
        address=Address.of("/shop"),
        queues=("orders",),
        consumer=None,
        ack="onCommit",
        sweepable=False,
        reset=False,
        magazine=Magazine.MAIN,
        selector=None,
        order_by=None,
        order="shard",
        fallback=False,
        priority=None,
        max_in_flight=None,
        exclusive=False,
        single_active=False,
        max_messages=None,
        max_bytes=None,
        min_messages=None,
        max_delay=900.0,
        include_metadata=True,
        partitions=None,
        idle_wait=0.2,
        heartbeat_interval=10.0,
        refresh_interval=300.0,
        tasks=TASKS,
        reports=False,
        interval=None,
        deep=False,
        limit=None,
        rate=None,
        zookeeper=None,
        client_id="ignis",
        view=None,
        breaker=None,
    )


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"MAXMESSAGESPERTRIGGER": "1_000"}, "max_messages", 1000),
        ({"maxBytesPerTrigger": "64 mb"}, "max_bytes", 64 << 20),
        ({"minMessagesPerTrigger": "10"}, "min_messages", 10),
        ({"maxTriggerDelay": "5m"}, "max_delay", 300.0),
        ({"ACK": "oncommit"}, "ack", "onCommit"),
        ({"ack": "Settle"}, "ack", "settle"),
        ({"magazine": "SIDELINE"}, "magazine", Magazine.SIDELINE),
        ({"order": "Global"}, "order", "global"),
        ({"includeMetadata": "False"}, "include_metadata", False),
        ({"idleWait": "50ms"}, "idle_wait", 0.05),
        ({"heartbeatInterval": "2 min"}, "heartbeat_interval", 120.0),
        ({"view": "Slices"}, "view", "slices"),
        ({"numPartitions": "3"}, "partitions", 3),
        ({"consumer": "clerk:1@home"}, "consumer", "clerk:1@home"),
        ({"ack": "keep", "consumer": "line"}, "consumer", "keeper:line"),
        ({"ack": "keep", "consumer": "keeper:line"}, "consumer", "keeper:line"),
        ({"ack": "keep", "reset": "true"}, "reset", True),
        ({"refreshInterval": "1m"}, "refresh_interval", 60.0),
        ({"tasks": "Shovel, sweep"}, "tasks", ("shovel", "sweep")),
        ({"tasks": "none"}, "tasks", ()),
        ({"tasks": "All", "ack": "browse"}, "tasks", TASKS),
        ({"ack": "browse"}, "tasks", ()),
        ({"task": "Shovel"}, "tasks", ("shovel",)),
        ({"task": "all"}, "tasks", tuple(name for name in TASKS if not REGISTRY[name].of_store)),
        ({"task": "shovel"}, "reports", True),
        ({"task": "shovel", "interval": "5 m"}, "interval", 300.0),
        ({"task": "all", "limit": "1_000"}, "limit", 1000),
        ({"task": "shovel", "rate": "0.5"}, "rate", 0.5),
        ({"zookeeper": "zoo:2181", "clientId": "shop"}, "client_id", "shop"),
    ],
)
def test_an_option_is_parsed_whatever_its_case(given, field, value):
    assert getattr(options(**given), field) == value


def test_several_queues_come_with_commas_between_them():
    chosen = SourceOptions.of({"path": "/shop", "queues": " red, blue ,"})
    assert chosen.queues == ("red", "blue")


def test_a_view_needs_no_queue():
    assert SourceOptions.of({"path": "/shop", "view": "queues"}).queues == ()


def test_a_task_is_for_all_queues_unless_some_are_named():
    chosen = SourceOptions.of({"path": "/shop", "task": "all"})
    assert chosen.queues == ()
    assert chosen.tasks == TASKS


def test_all_wrong_options_are_told_at_once_each_with_what_was_meant():
    with pytest.raises(BadOption) as refused:
        options(
            maxMessagePerTrigger="5",
            ack="commit",
            includeMetadata="yes",
            maxBytesPerTrigger="lots",
            numPartitions="0",
            idleWait="-1s",
            consumer="no spaces",
            tasks="shovel, sleep",
            task="sweeep",
            rate="0",
        )
    told = str(refused.value)
    assert told.startswith("ignis source: ")
    for part in (
        "unknown option 'maxMessagePerTrigger'; did you mean 'maxMessagesPerTrigger'?",
        "ack='commit': use onCommit, settle, browse, keep; did you mean 'onCommit'?",
        "includeMetadata='yes': use true or false",
        "maxBytesPerTrigger='lots': use a number of bytes such as",
        "numPartitions='0': use a whole number, 1 or more",
        "idleWait='-1s': use a duration of 0 or more",
        "consumer='no spaces': consumer name 'no spaces': use a letter or digit",
        "tasks='shovel, sleep': task='sleep'",
        f"task='sweeep'; did you mean 'sweep'?; use {', '.join(TASKS)}",
        "rate='0': use messages a second, more than 0",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "/shop"}, "name a queue"),
        ({"path": "/shop", "queue": "a", "queues": "a,b"}, "set queue or queues, not both"),
        ({"path": "/shop", "queues": ","}, "queues=',': use one or more names"),
        ({"queue": "a"}, "the store has no address"),
        ({"queue": "a", "catalog": "sqlite:///x.db"}, "the store has no address"),
        ({"path": "/x", "catalog": "sqlite:///x.db", "queue": "a"}, "not both"),
        ({"path": "s3://bucket/shop", "queue": "a"}, "is not a local folder; pass catalog="),
        ({"path": "/x", "queue": "a", "limit": "5"}, "limit belongs to a task: set"),
        ({"path": "/x", "queue": "a", "interval": "5"}, "interval belongs to a task: set"),
        ({"path": "/x", "queue": "a", "interval": "0"}, "interval belongs to a task: set"),
        (
            {"path": "/x", "task": "sweep", "limit": "5"},
            "limit belongs to task='shovel', not to task='sweep'",
        ),
        ({"path": "/x", "task": "shovel", "view": "reports"}, "reads no messages: remove view"),
        (
            {"path": "/x", "task": "vacuum", "queue": "a"},
            "runs on the whole store",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(BadOption, match=message):
        SourceOptions.of(given)


def test_the_name_of_each_of_several_queues_is_checked():
    with pytest.raises(BadName, match=r"'\.\./x'"):
        SourceOptions.of({"path": "/shop", "queues": "red,../x"})


def test_every_option_says_what_it_does():
    assert all(option.about.endswith(".") for option in OPTIONS)
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"exclusive": "true", "singleActive": "true"}, "set exclusive or singleActive, not both"),
        ({"ack": "browse", "priority": "3"}, "priority cannot be set with ack=browse"),
        ({"ack": "browse", "priority": "0"}, "priority cannot be set with ack=browse"),
        ({"ack": "browse", "maxInFlight": "3"}, "maxInFlight cannot be set with ack=browse"),
        ({"ack": "browse", "exclusive": "true"}, "exclusive cannot be set with ack=browse"),
        ({"task": "sweep", "priority": "1"}, "remove priority"),
        ({"maxInFlight": "0"}, "maxInFlight"),
        (
            {"ack": "browse", "minMessagesPerTrigger": "3"},
            "minMessagesPerTrigger cannot be set with ack=browse",
        ),
        (
            {"ack": "browse", "maxBytesPerTrigger": "64m"},
            "maxBytesPerTrigger cannot be set with ack=browse",
        ),
        (
            {"minMessagesPerTrigger": "3", "maxMessagesPerTrigger": "2"},
            "minMessagesPerTrigger=3 is more than maxMessagesPerTrigger=2",
        ),
        (
            {"minMessagesPerTrigger": "3", "maxInFlight": "2"},
            "minMessagesPerTrigger=3 is more than maxInFlight=2",
        ),
        ({"task": "sweep", "minMessagesPerTrigger": "3"}, "remove minMessagesPerTrigger"),
        ({"priority": "high"}, "priority"),
        ({"ack": "keep", "sweepable": "true"}, "ack=keep keeps messages from sweeps"),
        ({"reset": "true"}, "reset belongs to ack=keep"),
    ],
)
def test_who_goes_first_is_said_in_one_way(given, told):
    with pytest.raises(BadOption, match=told):
        SourceOptions.of({"path": "p", "queue": "orders"} | given)


def test_the_name_of_a_keeper_leaves_room_for_what_shows_that_it_keeps():
    longest = "a" * 193
    assert options(ack="keep", consumer=longest).consumer == f"keeper:{longest}"
    with pytest.raises(BadName, match="at most 200 in all"):
        options(ack="keep", consumer=f"{longest}a")
