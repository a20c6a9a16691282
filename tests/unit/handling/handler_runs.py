"""Run handlers on messages in memory, and return the outcomes."""

from dataclasses import fields

import pyarrow as pa

from queue_core.handling.contract import Contract
from queue_core.handling.handler import HandlerRunner
from queue_core.handling.payloads import Payload

DELETED = ("delete",)
#: No handler was called for it.
UNHANDLED = ("reload", "unhandled", None)
REJECTED = ("sideline", "rejected", None)


def late(seconds):
    return ("sideline", "timeout", f"not done after {seconds} s")


class Declined(Exception):
    pass


class DeclinedForGood(Declined):
    pass


def runner_of(handler, **how):
    """What runs a handler; *how*: fields of the runner, and of its contract."""
    own = {each.name for each in fields(HandlerRunner)} & how.keys()
    contract = Contract(handler=handler, **{name: how[name] for name in how.keys() - own})
    return HandlerRunner(contract, **{name: how[name] for name in own})


def messages(count=3, **columns):
    return pa.record_batch({"_message_id": range(count), **columns})


def outcomes(handler, batch=None, **how):
    """``(outcome, kind, reason)`` of each message, in order."""
    settled = list(runner_of(handler, **how).run([messages() if batch is None else batch]))
    assert [row["_message_id"] for part in settled for row in part.to_pylist()] == (
        (messages() if batch is None else batch)["_message_id"].to_pylist()
    )
    verdicts = [tuple(row.values())[1:4] for part in settled for row in part.to_pylist()]
    # A deleted message has no reason, unless its exception is ignored.
    return [verdict[:1] if verdict[1:] == (None, None) else verdict for verdict in verdicts]


def raising(error):
    def handler(_):
        raise error

    return handler


def handled(handler, *texts, kind=None, **payload):
    """``(outcome, kind, reason)`` of each payload."""
    count = len(texts)
    values = pa.array(texts, kind or pa.string())
    batch = pa.record_batch({"_message_id": range(count), "value": values, "_attempt": [0] * count})
    runner = runner_of(handler, ignorable=(ValueError,), payload=Payload("value", **payload))
    (settled,) = runner.run([batch])
    return [tuple(row.values())[1:4] for row in settled.to_pylist()]


def waits(handler, batch=None, **how):
    """The outcome, the delay and whether it is dead, of each message."""
    runner = runner_of(handler, **how)
    (settled,) = runner.run([messages() if batch is None else batch])
    return [(row["outcome"], row["delay"], row["dead"]) for row in settled.to_pylist()]
