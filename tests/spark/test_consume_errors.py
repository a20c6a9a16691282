"""Wrong calls of `consume` are refused before anything is started or changed."""

import threading
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from pyspark_ignis import batch_handler
from queue_core import Retry
from queue_core.errors import BadOption, BadSelector, NoSuchQueue, NoSuchStore, SchemaMismatch
from tests.spark.consuming import make_cases
from tests.spark.rig import counts


@dataclass
class Case:
    what: str


def accept(_):
    return True


def closing_over_a_lock():
    lock = threading.Lock()

    def handler(_):
        with lock:
            return True

    return handler


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"queue": "casez"}, NoSuchQueue, "'casez'.*did you mean 'cases'"),
        ({"queue": "../cases"}, BadOption, "'../cases'"),
        ({"queue": []}, BadOption, "queues=''"),
        ({"queue": ["cases", "other"]}, BadOption, "different columns"),
        ({"path": "nowhere"}, NoSuchStore, "nowhere"),
        ({"path": None}, BadOption, "the store has no address"),
        ({"storage": "here"}, BadOption, "either path="),
        ({"magazine": "sidelined"}, BadOption, "did you mean 'sideline'"),
        ({"max_messages": 0}, BadOption, "maxMessagesPerTrigger='0'"),
        ({"consumer": "no spaces"}, BadOption, "'no spaces'"),
        ({"checkpoint": ""}, BadOption, "checkpoint"),
        ({"checkpoint": None}, BadOption, "checkpoint=None is not a folder"),
        ({"columns": ["wat"]}, SchemaMismatch, "'wat'.*did you mean 'what'"),
        ({"columns": "what"}, BadOption, "list of column names"),
        ({"trigger": {"availableNoww": True}}, BadOption, "did you mean 'availableNow'"),
        ({"trigger": {"once": True, "availableNow": True}}, BadOption, "give one of"),
        ({"trigger": "availableNow"}, BadOption, r"trigger=\{'availableNow': True\}"),
        ({"trigger": "once"}, BadOption, r"trigger=\{'once': True\}"),
        ({"trigger": "5 seconds"}, BadOption, r"trigger=\{'processingTime': '5 seconds'\}"),
        ({"trigger": True}, BadOption, r"trigger=True: give a dict, .*\{'availableNow': True\}"),
        ({"ignorable": (KeyboardInterrupt,)}, BadOption, "KeyboardInterrupt.*not a subclass"),
        ({"handler_timeout": 0}, BadOption, "handler_timeout=0"),
        ({"handler_timeout": 601}, BadOption, "601: use at most 600 seconds.*'cases'"),
        ({"payload": "wat"}, SchemaMismatch, "'wat'.*did you mean 'what'"),
        ({"payload": "number"}, BadOption, "payload='number' is bigint, not string"),
        ({"payload": "what", "columns": ["number"]}, BadOption, "with_metadata=True"),
        ({"payload_type": Case}, BadOption, "payload_type and with_metadata need payload="),
        ({"handler": None}, BadOption, "handler=None"),
        ({"handler": lambda: True}, BadOption, "cannot take its 1 argument"),
        ({"payload": "what", "with_metadata": True}, BadOption, "cannot take its 2 arguments"),
        ({"on_none": "drop"}, BadOption, "on_none='drop'"),
        ({"handler": closing_over_a_lock()}, BadOption, "cannot be sent to the executors"),
        ({"selector": "wat > 3"}, BadSelector, "did you mean 'what'"),
        ({"numPartition": 3}, BadOption, "numPartition.*did you mean 'numPartitions'"),
        ({"ack": "browse"}, BadOption, "'ack' cannot be .* option; consume\\(\\) does not take it"),
        ({"maxmessagespertrigger": 3}, BadOption, "'maxmessagespertrigger'.*; use max_messages="),
        ({"Path": "there"}, BadOption, "'Path' cannot be passed .*; use path="),
        ({"max_mesages": 3}, BadOption, "argument 'max_mesages'; did you mean 'max_messages'"),
        ({"handler_timout": 3}, BadOption, "did you mean 'handler_timeout'"),
        ({"maxmessages": 3}, BadOption, "did you mean 'max_messages'"),
        ({"options": {"numPartitions": 2}}, BadOption, "pass each option by its own name"),
        ({"wholly": 1, "unlike": 2}, BadOption, "argument 'wholly'; unknown argument 'unlike'"),
    ],
)
def test_a_wrong_call_is_refused_by_name(spark, start, tmp_path, how, error, told):
    queue = make_cases(tmp_path, "a", "b")
    queue.store.create_queue("other", pa.schema([("x", pa.int64())]))
    if how.get("path"):
        how = how | {"path": str(tmp_path / how["path"])}

    with pytest.raises(error, match=f"(?s){told}"):
        start(**{"handler": accept} | how)

    assert spark.streams.active == []
    assert counts(queue, "fired") == [0]
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("handler", "how", "told"),
    [
        (lambda: F.col("wat") == "a", {}, "cannot evaluate.*wat"),
        (lambda: F.col("number") + 1, {}, "bigint, not boolean"),
        (lambda: F.col("number") > 1, {"ignorable": ValueError}, "for handlers in Python"),
        (lambda: F.col("number") > 1, {"handler_timeout": 1}, "for handlers in Python"),
        (lambda: F.col("number") > 1, {"payload": "what"}, "for handlers in Python"),
        (lambda: F.col("number") > 1, {"on_none": "delete"}, "for handlers in Python"),
        (lambda: F.col("number") > 1, {"retry": Retry(on=[ValueError])}, "name ValueError"),
    ],
)
def test_an_expression_that_decides_nothing_is_refused(spark, start, tmp_path, handler, how, told):
    make_cases(tmp_path, "a")

    with pytest.raises(BadOption, match=f"(?s){told}"):
        start(handler(), **how)
    assert spark.streams.active == []


def test_a_marked_handler_that_is_sent_along_stays_marked(spark):
    from pyspark import cloudpickle

    from queue_core.handling.handler import takes_batches

    sent = cloudpickle.loads(cloudpickle.dumps(batch_handler(lambda b: [True] * b.num_rows)))

    assert takes_batches(sent)
