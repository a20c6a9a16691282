"""What a handler of `consume` returns is loaded with the settlement of its micro-batch, once."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_ignis import Reject, batch_handler, consume
from queue_core import BadOption, NoSuchQueue
from tests.crash.spark.checkpoint import forget_commit
from tests.factories import drop, main, numbers_of
from tests.spark.consuming import left_in, make_cases, reasons
from tests.spark.rig import AVAILABLE_NOW, finish

RESULTS = pa.schema([("number", pa.int64()), ("text", pa.string())])


def give(message):
    number = message["number"]
    match message["what"]:
        case "bad":
            return {"numer": number}
        case "reject":
            raise Reject("nobody wants it")
        case "two":
            return [{"number": number, "text": text} for text in "ab"]
    return True, {"number": number}


@batch_handler
def give_all(batch):
    return batch.select(["number", "_message_id"])


def run(spark, folder, checkpoint, handler=give, **how):
    how = {"output": "results", "max_messages": 20} | how
    query = consume(
        spark, "cases", handler, path=folder / "store", checkpoint=checkpoint,
        trigger=AVAILABLE_NOW, **how,
    )  # fmt: skip
    finish(query)


@pytest.mark.parametrize("key", [pytest.param(None, marks=pytest.mark.nightly), "number"])
def test_rows_of_deleted_messages_are_loaded(spark, tmp_path, checkpoint, key):
    queue = make_cases(tmp_path, *["one"] * 30, "two", "bad", "reject")
    results = queue.store.create_queue("results", RESULTS, shards=3, key=key)

    run(spark, tmp_path, checkpoint)

    assert Counter(numbers_of(results.browse())) == Counter([*range(30), 30, 30])
    assert left_in(queue) == []
    kind, reason = reasons(queue)["bad"]
    assert kind == "exception"
    assert "queue 'results' has no column 'numer'" in reason
    assert reasons(queue)["reject"] == ("rejected", "nobody wants it")


def test_a_batch_that_runs_again_loads_nothing(spark, tmp_path, checkpoint):
    queue = make_cases(tmp_path, *["one"] * 30)
    results = queue.store.create_queue("results", RESULTS)
    run(spark, tmp_path, checkpoint, give_all)
    assert forget_commit(Path(checkpoint)) == "commits/1"

    run(spark, tmp_path, checkpoint, give_all)

    assert main(results) == list(range(30))
    assert left_in(queue) == []
    assert queue.store.admin.fsck().num_rows == 0


@pytest.mark.parametrize("settings", [{}, {"policy": "latest", "key": "number"}])
def test_rows_of_messages_that_others_have_got_are_left_out(tmp_path, settings):
    from ignis_sink.options import SinkOptions
    from ignis_sink.output import find_output, settle_tasks, stage_output
    from queue_core import IdSet, Settlement
    from queue_core.handling.output import OutputRows, packed
    from queue_core.values.model import StagedOutput

    queue = make_cases(tmp_path, *["one"] * 9)
    results = queue.store.create_queue("results", RESULTS, shards=3, **settings)
    firing = queue.fire("all")
    messages = firing.messages.select(["_message_id", "number"])
    ids = messages.column("_message_id").combine_chunks()
    rows = pa.table({"number": messages.column("number"), "text": ["x"] * 9}, schema=RESULTS)
    options = SinkOptions.of(
        {"path": str(tmp_path / "store"), "queue": "cases", "mode": "settle", "output": "results"}
    )
    target = find_output(options)
    staged = stage_output([packed(OutputRows(range(9), rows), ids)], target)
    assert isinstance(staged, StagedOutput)
    # A sweep and another consumer were faster.
    queue.reload(ids.take([1, 4, 8]).to_pylist())
    settlement = Settlement(deleted=IdSet.of(ids))

    how = (options, [queue.info], settlement, firing.ticket.consumer, None)
    done = settle_tasks(*how, [staged], target.spec)

    assert done == 6
    left = {numbers_of(messages)[place] for place in (1, 4, 8)}
    assert set(numbers_of(results.browse())) == set(range(9)) - left
    assert set(numbers_of(queue.browse())) == left
    assert queue.store.admin.fsck().to_pylist() == []


def test_rows_are_not_loaded_into_a_queue_that_was_made_anew_with_other_columns(tmp_path):
    from ignis_sink.options import SinkOptions
    from ignis_sink.output import find_output
    from ignis_sink.settle import apply, gather
    from queue_core.errors import Conflict
    from queue_core.handling.output import OUTPUT, OutputRows, packed

    queue = make_cases(tmp_path, "one")
    store = queue.store
    results = store.create_queue("results", RESULTS)
    firing = queue.fire(1)
    ids = firing.ids.combine_chunks()
    rows = packed(
        OutputRows(range(1), pa.table({"number": [1], "text": ["x"]}, schema=RESULTS)), ids
    )
    options = SinkOptions.of(
        {"path": str(tmp_path / "store"), "queue": "cases", "mode": "settle", "output": "results"}
    )
    outcomes = pa.record_batch({"_message_id": ids, "outcome": ["delete"], OUTPUT: [rows]})
    task = gather([outcomes], None, find_output(options))
    drop(results)
    others = store.create_queue("results", pa.schema([("text", pa.string())]))

    with pytest.raises(Conflict, match="queue 'results' was created or changed by another process"):
        apply(options, [task], None)
    assert others.browse().num_rows == 0
    assert queue.delete(firing) == 1


@pytest.mark.parametrize(
    ("output", "error"), [("result", NoSuchQueue), ("cases_SIDELINE", BadOption)]
)
def test_an_output_that_cannot_be_is_refused(spark, tmp_path, checkpoint, output, error):
    make_cases(tmp_path, "one")
    with pytest.raises(error):
        run(spark, tmp_path, checkpoint, output=output)
