"""Each problem is found when the figures show it, and not otherwise."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from queue_core import QueueSettings, limit
from queue_core.values.log_limits import Lag
from queue_core.watching.causes import Blocked, Causes, Holder, LimitState, OpenBreaker
from queue_core.watching.present import FailedJob, Figures, FigureSample, QueueFigures
from queue_core.watching.problems import find, of_queue, why
from queue_core.watching.space import Space

WELL = QueueFigures(
    id=1,
    name="orders",
    state="active",
    waiting=10,
    oldest_age=5.0,
    longest_wait=5.0,
    in_flight=2,
    sidelined=3,
    retrying=3,
    dead=0,
    damaged=0,
    shards=8,
    concurrency=8,
    settings=QueueSettings(),
    paused_for=None,
    overdue_for=None,
    shovelled_before=None,
    consumers=1,
)
FULL = QueueSettings(max_size=5)
TASKS = {"sample": 5.0, "sweep": 800.0, "expire": 100.0, "compact": 100.0, "vacuum": 3000.0}


def sample(sidelined):
    return FigureSample(0.0, 1, 1.0, 1.0, 0, sidelined, None, None, None, None, None)


def history(first, step, *, gets, gives, each=60, count=5):
    """Samples of a queue whose waiting messages become more by a step."""
    return tuple(
        FigureSample(
            place * each, first + step * place, 1.0, 1.0, 0, 0, gets - 1, 1.0, gives, gives, 0.0
        )
        for place in range(count)
    )


def kinds(*queues, **others):
    figures = Figures(now=0, queues=queues, **({"tasks": TASKS} | others))
    return [problem.kind for problem in find(figures, 900.0)]


def test_a_healthy_store_has_no_problems():
    assert kinds(WELL) == []
    assert kinds(tasks={}) == []


#: Two of its messages are in flight from main.
BUSY = {"counts": SimpleNamespace(main_in_flight=2, main_damaged=0)}
#: Two of its messages cannot be read.
TORN = {"counts": SimpleNamespace(main_in_flight=0, main_damaged=2)}
JOB_LEFT = ["deactivated", "job"]
#: A sideline that grows, and no shovel is planned.
GROWING = {
    "settings": QueueSettings(retry=None, shovel_interval=600.0),
    "samples": (sample(2), sample(3)),
    "shovelled_before": 1801.0,
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"longest_wait": 901.0}, ["old"]),
        ({"longest_wait": 900.0}, []),
        ({"longest_wait": None}, []),
        ({"overdue_for": 61.0}, ["overdue"]),
        ({"overdue_for": 60.0}, []),
        ({"dead": 1}, ["dead"]),
        ({"damaged": 1}, ["damaged"]),
        ({"stuck": 1, "stuck_for": 1201.0}, ["stuck"]),
        ({"settings": QueueSettings(max_size=10)}, ["full"]),
        ({"settings": QueueSettings(max_size=11)}, []),
        (BUSY | {"settings": QueueSettings(max_size=12)}, ["full"]),
        (BUSY | {"settings": QueueSettings(max_size=13)}, []),
        (BUSY | {"settings": QueueSettings(max_size=12, room="on_fire")}, []),
        ({"settings": QueueSettings(max_size=10, overflow="ring")}, []),
        (TORN | {"settings": QueueSettings(max_size=12)}, ["full"]),
        (TORN | {"settings": QueueSettings(max_size=12, room="on_fire")}, ["full"]),
        ({"used_bytes": 95, "settings": QueueSettings(max_bytes=100)}, ["full"]),
        ({"used_bytes": 94, "settings": QueueSettings(max_bytes=100)}, []),
        ({"used_bytes": 95, "settings": QueueSettings(max_bytes=100, overflow="ring")}, []),
        ({"settings": QueueSettings(max_size=0)}, []),
        (
            {"damaged": None, "dead": None, "waiting": None, "settings": QueueSettings(max_size=1)},
            [],
        ),
        ({"paused_for": 3.0}, ["paused"]),
        ({"paused_for": 3.0, "state": "deactivated"}, ["deactivated"]),
        ({"state": "deactivated", "longest_wait": 9999.0, "dead": 1}, ["deactivated"]),
        ({"state": "deactivated", "waiting": 0, "sidelined": 0}, []),
        ({"consumers": 0, "longest_wait": 181.0}, ["unconsumed"]),
        ({"consumers": 0, "longest_wait": 179.0}, []),
        ({"consumers": 0, "longest_wait": 9999.0, "fired_per_s": 1.0}, ["old"]),
        # A queue without a consumer is not late as well.
        ({"consumers": 0, "longest_wait": 9999.0}, ["unconsumed"]),
        ({"consumers": 0, "longest_wait": 9999.0, "waiting": 0}, ["old"]),
        ({"consumers": None, "longest_wait": 9999.0}, ["old"]),
        ({"causes": Causes(breakers=(OpenBreaker("bank", "open", 5.0),))}, ["breaker"]),
        ({"causes": Causes(holders=(Holder("till", 3, 100.0, 61.0),))}, ["silent"]),
        ({"causes": Causes(limits=(LimitState(limit(per_second=1), 0, 0, 0.3),))}, []),
        ({"jobs": (FailedJob("abc", None),)}, ["job"]),
        ({"jobs": (FailedJob("abc", None),), "state": "deactivated", "waiting": 1}, JOB_LEFT),
        ({"jobs": (FailedJob("abc", "no room", has_ended=False),)}, ["still"]),
        # A paused queue is not late as well.
        ({"paused_for": 1.0, "longest_wait": 9999.0}, ["paused"]),
        ({"concurrency": 0, "longest_wait": 9999.0}, ["paused"]),
        (GROWING, ["growing"]),
        (GROWING | {"settings": QueueSettings(retry=None, shovel_interval=None)}, ["growing"]),
        (GROWING | {"shovelled_before": None}, ["growing"]),
        (GROWING | {"shovelled_before": 600.0}, []),
        (GROWING | {"settings": QueueSettings()}, []),
        (GROWING | {"sidelined": 2}, []),
        (GROWING | {"sidelined": None}, []),
        (GROWING | {"samples": ()}, []),
        (GROWING | {"samples": (sample(None),)}, []),
    ],
)
def test_the_problems_of_a_queue(change, found):
    assert kinds(replace(WELL, **change)) == found


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"tasks": {}}, ["tasks"]),
        ({"tasks": {"sample": 601.0, "sweep": 700.0}}, ["tasks"]),
        ({"tasks": TASKS | {"sweep": 2701.0}}, ["task"]),
        ({"tasks": {"sample": 5.0}}, []),
        ({"spaces": (Space("catalog", "/x", 9, 100),)}, ["space"]),
        ({"spaces": (Space("catalog", "/x", 10, 100),)}, []),
        ({"breakers": (OpenBreaker("bank", "open", 5.0, queues=("orders",)),)}, []),
        ({"breakers": (OpenBreaker("bank", "open", 5.0),)}, ["breaker"]),
    ],
)
def test_the_problems_of_a_store(figures, found):
    assert kinds(WELL, **figures) == found


def test_without_side_tasks_messages_return_at_their_own_times_all_the_same():
    for tasks in ({}, {"sample": 601.0}):
        (found,) = find(Figures(now=0, queues=(WELL,), tasks=tasks), 900.0)
        assert "nothing is swept, expired, compacted or vacuumed" in found.text


def test_the_worst_comes_first():
    queues = (replace(WELL, name="a", paused_for=1.0), replace(WELL, name="b", damaged=4))

    assert kinds(*queues) == ["damaged", "paused"]


def test_each_problem_says_what_to_do():
    queue = replace(WELL, longest_wait=7500.0, dead=2, damaged=1, settings=FULL, stuck=1)
    queue = replace(queue, jobs=(FailedJob("abc", None), FailedJob("def", "no room")))
    found = find(Figures(now=0, queues=(queue,)), 900.0)
    assert {"dead", "damaged", "job"} <= {problem.kind for problem in found}
    for problem in found:
        assert problem.text.endswith(".")
        assert problem.advice.endswith(".")


FINE = history(1000, 1000, gets=9.0, gives=2.0, each=10, count=30)
GROWS = {"waiting": 5000, "samples": history(1000, 1000, gets=159.0, gives=29.0)}
READS = {"waiting": 5000, "lag": Lag(5000, 5.0, 1)}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (GROWS, [("behind", "warning")]),
        (
            GROWS | {"samples": history(1000, 1000, gets=9.0, gives=2.0, each=10, count=30)},
            [("behind", "warning")],
        ),
        # Half a minute of samples says nothing.
        (GROWS | {"samples": history(1000, 1000, gets=9.0, gives=2.0, each=10, count=3)}, []),
        # It is no problem if it grows by little, or has not grown all the time.
        (GROWS | {"waiting": 1000}, [("behind", None)]),
        (GROWS | {"samples": history(1000, 0, gets=159.0, gives=29.0)}, [("behind", None)]),
        (GROWS | {"samples": history(9000, -1000, gets=10.0, gives=20.0)}, [("draining", None)]),
        (GROWS | {"samples": history(9000, 0, gets=0.0, gives=0.0)}, []),
        (GROWS | {"paused_for": 1.0}, [("paused", "note")]),
        # A subscription gets what its log gets, and not only what it takes in.
        (READS | {"samples": history(1000, 6000, gets=10.0, gives=10.0)}, [("behind", "warning")]),
        (READS | {"samples": history(9000, -1000, gets=99.0, gives=20.0)}, [("draining", None)]),
        # The reason is that nobody takes anything.
        (GROWS | {"consumers": 0}, [("unconsumed", None), ("behind", None)]),
    ],
)
def test_a_queue_that_grows_is_a_problem_before_its_messages_are_old(change, found):
    assert [(each.kind, each.severity) for each in why(replace(WELL, **change))] == found


def test_the_pace_of_a_queue_is_said_with_its_end():
    grows = why(replace(WELL, **GROWS))[0].text
    drains = replace(WELL, waiting=600, samples=history(9000, -60, gets=10.0, gives=20.0))

    assert (
        grows == "It gets 159/s and hands out 29/s, so it grows by 130/s: it will never be empty."
    )
    assert why(drains)[0].text == "It gets 10/s and hands out 20/s: it will be empty in 1 min."
    # A second's work, and a queue from which somebody fires by hand, once.
    assert not why(replace(drains, waiting=15))
    once = (*QUIET[:-1], replace(QUIET[-1], fired_per_s=0.1))
    assert "empty" not in " ".join(each.text for each in why(replace(drains, samples=once)))


#: It hands out nothing, and gets nothing.
QUIET = history(9000, 0, gets=0.0, gives=0.0)
#: 20 messages at once, lately.
ONE_LOAD = (replace(QUIET[-1], loaded_per_s=0.3, fired_per_s=0.0, waiting=20),)
HUNG = Holder("till", 40, 300.0, 1.0, "vm", 488)


def because(**causes):
    return {"causes": Causes(**causes)}


def of_limit(limit, in_flight=0, tokens=None, opens_in=0.0):
    return because(limits=(LimitState(limit, in_flight, tokens, opens_in),))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"paused_for": 180.0, "paused_by": "ann@vm"}, "ann@vm paused the queue 3 min ago."),
        ({"concurrency": 0}, "its concurrency is 0"),
        (
            because(breakers=[OpenBreaker("bank", "probing", 1200.0)]),
            "open for 20 min: no call",
        ),
        (
            because(breakers=[OpenBreaker("b", "open", 1.0, True, "bob@vm")]),
            "bob@vm opened breaker b 1.0 s ago.",
        ),
        ({"longest_wait": 4200.0}, "1 consumer is connected, but a message has waited for 1 h 10"),
        (
            {
                "longest_wait": 4200.0,
                "fired_per_s": 0.0,
                "consumers": 2,
                "samples": QUIET,
                "in_flight": 0,
            },
            "2 consumers are connected, and none has taken a message for at least 4 min.",
        ),
        ({"longest_wait": 4200.0, "fired_per_s": 5.0}, "a message has waited for 1 h 10 min."),
        (because(holders=[HUNG]), "Consumer till (process 488 on vm) holds 40 messages, the first"),
        (because(holders=[HUNG]) | {"waiting": 0}, "holds 40 messages, the first for 5 min."),
        (of_limit(limit(in_flight=2), 2), "Its limit(in_flight=2) is reached: 2 messages are in"),
        (of_limit(limit(in_flight=1), 1), "1 message is in flight; it gives more"),
        (of_limit(limit(per_second=10), 0, 0, 0.5), "it gives more in 0.5 s."),
        (of_limit(limit(per_second=10), 0, 1) | {"fired_per_s": 9.5}, "it hands out 9.5/s."),
        ({"in_flight": 3, "fired_per_s": 0.0}, "3 messages are in flight."),
        (because(next_due=300.0) | {"waiting": 0, "retrying": 5}, "later, the first in 5 min."),
        (because(next_due=1.0) | {"state": "deactivated"}, "It was deactivated for good"),
    ],
)
def test_each_reason_is_said(change, said):
    (reason,) = why(replace(WELL, **change))

    assert said in reason.text


@pytest.mark.parametrize(
    ("blocked", "said"),
    [
        (Blocked("group", "tenant"), "behind one of its tenant"),
        (Blocked("limits", "limit('tenant', in_flight=1)"), "is reached for each value that waits"),
        (Blocked("hold_until", "at", 7200.0), "is held by its at, the first for 2 h more."),
    ],
)
def test_a_rule_that_holds_back_what_waits_is_a_reason(blocked, said):
    (reason,) = why(WELL, [blocked])

    assert said in reason.text
    assert reason.severity is None


STUCK = {"stuck": 40, "stuck_for": 1500.0} | because(holders=[replace(HUNG, held_for=1500.0)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (STUCK, "for up to 25 min: till (process 488 on vm) holds them."),
        (STUCK | {"stuck": 1}, "for up to 25 min: till (process 488 on vm) holds it."),
        (because(holders=[replace(HUNG, silent_for=99.0)]), "Consumer till (process 488 on vm) h"),
    ],
)
def test_what_a_consumer_holds_for_too_long_can_be_taken_back(change, said):
    (found,) = of_queue(replace(WELL, **change))

    assert said in found.text
    assert found.advice.endswith("with: ignis reload orders --consumer till --all.")
    assert (found.action, found.fields) == ("reload", {"all": "1", "consumer": "till"})
    # A query that deletes on commit gets its messages again, unless a sweep takes them.
    (holder,) = change["causes"].holders
    query = because(holders=[replace(holder, ack="onCommit")])
    (found,) = of_queue(replace(WELL, **change | query))
    assert found.advice.endswith("ignis sweep orders --consumer till.")


def test_a_consumer_whose_messages_are_named_as_stuck_is_no_second_reason():
    assert [each.kind for each in why(replace(WELL, **STUCK))] == ["stuck"]


def test_a_queue_that_gives_nothing_says_first_that_nobody_takes():
    change = GROWS | {"samples": history(1000, 1000, gets=159.0, gives=0.0), "fired_per_s": 0.0}
    found = why(replace(WELL, in_flight=0, longest_wait=600.0, **change))

    assert [each.kind for each in found] == ["untaken", "behind"]


@pytest.mark.parametrize(
    "samples",
    [
        # It keeps up, or was loaded once.
        history(66, 0, gets=5.0, gives=5.0),
        (*history(0, 0, gets=0.0, gives=0.0, count=4), *ONE_LOAD),
    ],
)
def test_a_short_backlog_and_one_load_do_not_last_for_ever(samples):
    assert why(replace(WELL, waiting=66, samples=samples)) == []


def test_the_concurrency_of_a_pool_is_named_where_more_workers_help():
    assert [each.kind for each in of_queue(replace(WELL, **GROWS))] == ["behind"]
    assert "its own concurrency" in of_queue(replace(WELL, **GROWS))[0].advice
    (full,) = of_queue(replace(WELL, consumers=0, settings=FULL))
    assert "Start a consumer" in full.advice
    # To scale a queue without a consumer does nothing.
    assert full.action is None


def test_a_disk_is_critical_where_its_alert_is():
    for free, severity in ((9, "warning"), (4, "critical")):
        (found,) = why(WELL, spaces=[Space("catalog", "/x", free, 100)])
        assert (found.kind, found.severity) == ("space", severity)
    assert why(WELL, spaces=[Space("catalog", "/x", 10, 100)]) == []


def test_a_queue_that_is_well_has_no_reason():
    assert why(WELL) == []


def test_a_rate_does_not_hide_that_its_consumer_has_gone():
    queue = replace(WELL, consumers=0, fired_per_s=5.0, longest_wait=10.0)

    assert "unconsumed" in [reason.kind for reason in why(queue)]
    assert "unconsumed" not in [reason.kind for reason in why(replace(queue, consumers=1))]
