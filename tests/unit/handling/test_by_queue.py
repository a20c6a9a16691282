"""A batch of many queues: each message goes to the handler of its queue."""

import pyarrow as pa

from queue_core.handling.by_queue import RunnerByQueue
from queue_core.handling.results import REFUSAL
from queue_core.values.outcomes import DELETE, SIDELINE
from tests.unit.handling.handler_runs import runner_of


def batch(*rows):
    names, ids = zip(*rows, strict=True)
    return pa.record_batch({"_message_id": pa.array(ids, pa.int64()), "_queue": pa.array(names)})


def runner(handlers):
    return RunnerByQueue(
        {name: runner_of(handler, columns=("_message_id",)) for name, handler in handlers.items()}
    )


def settled(batches):
    return [
        (row["_message_id"], row["outcome"], row[REFUSAL])
        for each in batches
        for row in each.to_pylist()
    ]


def test_each_message_is_handled_once_by_the_handler_of_its_queue_in_order():
    seen = []
    handlers = {
        name: lambda message, name=name: not seen.append((name, message["_message_id"]))
        for name in ("a", "b")
    }
    given = [batch(("a", 1), ("b", 2), ("a", 3)), batch(("b", 4))]

    found = settled(runner(handlers).run_task(iter(given)))

    assert seen == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]
    assert sorted(found) == [(number, DELETE, None) for number in (1, 2, 3, 4)]


def test_a_refusal_names_the_queue_and_each_task_judges_anew():
    handlers = {"a": lambda message: None, "b": lambda message: False}
    runners = runner(handlers)

    for _ in range(2):
        of_a, of_b = settled(runners.run_task([batch(("a", 1), ("b", 2))]))

        assert of_a[:2] == (1, SIDELINE)
        assert of_a[2].startswith("queue 'a': the handler ")
        assert of_b == (2, SIDELINE, None)
