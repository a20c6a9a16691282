"""`ignis load`: files of each format, and rows that do not fit."""

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from queue_core.values.json_text import as_json
from tests.command_line import answer, refusal
from tests.factories import make_queue, numbers_of, orders

MAPS = pa.schema(
    [
        ("id", pa.int64()),
        ("scores", pa.map_(pa.string(), pa.int64())),
        ("deep", pa.map_(pa.string(), pa.list_(pa.map_(pa.string(), pa.float64())))),
    ]
)


@pytest.mark.parametrize("format", ["jsonl", "parquet", "arrow", "stream"])
def test_load_takes_files_of_each_format(ignis, store, tmp_path, format):
    queue = make_queue(store)
    file = tmp_path / f"orders.{'arrow' if format == 'stream' else format}"
    rows = orders(100)
    if format == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    elif format == "parquet":
        pyarrow.parquet.write_table(rows, file)
    else:
        new = pa.ipc.new_file if format == "arrow" else pa.ipc.new_stream
        with new(file, rows.schema) as writer:
            writer.write_table(rows)

    assert answer(ignis("load", "orders", file, "--json")) == [{"loaded": 100, "left_out": 0}]
    assert queue.fire("all").messages.select(rows.column_names).equals(rows)


def test_what_peek_prints_can_be_loaded_again(ignis, store):
    """Times, maps of which JSON has no form, and bytes, which are base64 as in the console."""
    schema = MAPS
    for name, kind in {
        "numbered": pa.map_(pa.int64(), pa.list_(pa.map_(pa.string(), pa.float64()))),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "data": pa.binary(),
        "many": pa.list_(pa.struct([("x", pa.binary())])),
        "named": pa.map_(pa.binary(), pa.binary()),
        "prices": pa.map_(pa.string(), pa.decimal128(38, 18)),
        "times": pa.map_(pa.date32(), pa.timestamp("us", tz="UTC")),
        "clocks": pa.list_(pa.time64("ns")),
        "span": pa.duration("us"),
        "spans": pa.map_(pa.string(), pa.duration("us")),
    }.items():
        schema = schema.append(pa.field(name, kind))
    here, there = (store.create_queue(name, schema, shards=1) for name in ("here", "there"))
    full = {
        "scores": [("ada", 3), ("bob", None)],
        "deep": [("a", [[("x", 0.5)], []])],
        "numbered": [(7, [[("x", 0.5)]]), (8, None)],
        "day": datetime.date(2013, 1, 1),
        "at": datetime.datetime(2013, 1, 1, 5, 15, tzinfo=datetime.UTC),
        "data": b"\xff",
        "many": [{"x": b"\x00"}, None],
        "named": [(b"\xfe", None)],
        "prices": [("a", Decimal("1.000000000000000001")), ("b", Decimal(2))],
        "times": [(datetime.date(2013, 1, 1), datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC))],
        "clocks": [datetime.time(5, 15), None],
        "span": datetime.timedelta(days=-3, microseconds=1),
        "spans": [("a", datetime.timedelta(seconds=90)), ("b", None)],
    }
    rows = [full, {"scores": [("ada", 3), ("ada", 4)], "data": b"\\xff"}, {"data": b""}, {}]
    here.load(pa.Table.from_pylist(rows, schema))

    said = ignis("peek", "here", "--json")
    assert answer(ignis("load", "there", "--json", input=said.stdout)) == [
        {"loaded": 4, "left_out": 0}
    ]

    first, *others = answer(said)
    assert first["scores"] == {"ada": 3, "bob": None}
    assert (first["day"], first["at"][:16]) == ("2013-01-01", "2013-01-01T05:15")
    assert first["many"] == [{"x": "AA=="}, None]
    assert (first["span"], first["spans"]) == (-259199.999999, {"a": 90.0, "b": None})
    texts = [row["data"] for row in (first, *others)]
    assert texts == ["/w==", "XHhmZg==", "", None]
    assert texts == json.loads(as_json([row.get("data") for row in rows]))
    assert there.peek().select(schema.names).equals(here.peek().select(schema.names))


def test_load_says_how_many_messages_are_left_out(ignis, store):
    make_queue(store, key="customer", policy="latest")
    lines = "".join(json.dumps({"number": n, "customer": "a"}) + "\n" for n in range(3))

    assert "1 message loaded into orders, 2 left out" in ignis("load", "orders", input=lines).stdout
    assert answer(ignis("load", "orders", "--json", input="\n")) == [{"loaded": 0, "left_out": 0}]


def test_parts_are_cut_from_larger_batches_of_the_file(ignis, store, tmp_path, monkeypatch):
    queue = make_queue(store)
    file, sizes, load = tmp_path / "orders.arrow", [], type(queue).load
    with pa.ipc.new_stream(file, orders(0).schema) as writer:
        for first, count in ((0, 7), (7, 2), (9, 0), (9, 12)):
            writer.write_table(orders(count, first))

    def noted(self, rows):
        sizes.append(rows.num_rows)
        return load(self, rows)

    monkeypatch.setattr(type(queue), "load", noted)
    assert answer(ignis("load", "orders", file, "--part", 5, "--json"))[0]["loaded"] == 21
    assert sizes == [5, 5, 5, 5, 1]
    assert numbers_of(queue.fire("all").messages) == list(range(21))


def test_load_in_parts_reports_the_loaded_parts_before_an_error(ignis, store, tmp_path):
    queue = make_queue(store)
    file = tmp_path / "orders.arrow"
    with pa.ipc.new_stream(file, pa.schema([("number", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"number": [1, 2]}))
        writer.write_batch(pa.record_batch({"number": pa.array([3, None])}))

    result = ignis("load", "orders", file, "--part", 2)

    assert result.exit_code == 2
    before, why = result.stderr.splitlines()
    assert "2 messages were loaded" in before
    assert "'number' may not be null" in why
    assert numbers_of(queue.fire("all").messages) == [1, 2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"nmber": 1}', "did you mean 'number'"),
        ("hello", "line 1 of standard input cannot be read: Invalid value"),
        (
            '{"number": 1}\n\n{"number": "one"}\n{"number": 2}\n',
            "line 3 of standard input cannot be read: Column(/number) changed from number to str",
        ),
        ('{"customer": "a"}', "column 'number' may not be null"),
    ],
)
def test_load_refuses_rows_that_do_not_fit(ignis, store, text, why):
    queue = make_queue(store)

    assert why in refusal(ignis("load", "orders", input=text))
    assert len(queue.fire("all")) == 0


@pytest.mark.parametrize("bad", [0, 1, 4999, 9998, 9999])
@pytest.mark.parametrize("text", ["{", '{"number": "one"}', "[1]", '{"number": 1, "day": "soon"}'])
def test_an_error_names_the_file_and_the_line(ignis, store, tmp_path, monkeypatch, bad, text):
    schema = pa.schema([("number", pa.int64()), ("day", pa.date32())])
    store.create_queue("orders", schema, shards=1)
    lines = ['{"number": 7}'] * 10_000
    lines[bad] = text
    file = tmp_path / "orders.jsonl"
    file.write_text("\n" + "\n".join(lines))
    # The file has many parts.
    monkeypatch.setattr("ignis_cli.row_files._JSON_BYTES", 30_000)

    said = refusal(ignis("load", "orders", file))

    assert f"line {bad + 2} of {file} cannot be read: " in said
    assert "in row" not in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"id": 1, "scores": [1]}', "[1] is not an object, which a map needs"),
        ('{"id": 1, "scores": {"ada": "three"}}', "cannot be read"),
        ("[1, 2]", "a line is not a JSON object: [1, 2]"),
        ('{"id": 1}\n{', "line 2 of standard input cannot be read"),
    ],
)
def test_maps_that_do_not_fit_are_refused(ignis, store, text, why):
    queue = store.create_queue("orders", MAPS, shards=1)

    assert why in refusal(ignis("load", "orders", input=text))
    assert queue.peek(9).num_rows == 0


def test_bytes_that_differ_are_shown_differently(ignis, store):
    queue = store.create_queue("orders", pa.schema([("data", pa.binary())]), shards=1)
    queue.load([{"data": b"\xff"}, {"data": b"\\xff"}])

    said = ignis("peek", "orders").stdout
    assert [line.partition("\t")[0] for line in said.splitlines()[1:]] == ["\\xff", "\\\\xff"]


def test_what_does_not_fit_a_column_is_refused_with_its_type(ignis, store):
    schema = pa.schema([("data", pa.binary()), ("amount", pa.float64())])
    queue = store.create_queue("orders", schema, shards=1)
    queue.load([{"data": b"a", "amount": 2.0}])
    queue.sideline(queue.fire(1).ids, "declined")
    (number,) = queue.browse(magazine="sideline").column("_message_id").to_pylist()

    said = refusal(ignis("load", "orders", input='{"data": "/w=="}\n{"data": "hello"}\n'))
    assert 'line 2 of standard input cannot be read: "hello" is not base64' in said
    said = refusal(ignis("edit", "orders", number, "--set", "data=hello"))
    assert said == "ignis: --set data=hello: column 'data' is binary, and 'hello' is not base64\n"
    said = refusal(ignis("edit", "orders", number, "--set", "amount=abc"))
    assert said == "ignis: --set amount=abc: column 'amount' is double, and 'abc' is not\n"
    assert ignis("edit", "orders", number, "--set=data=/w==", "--set=amount=3").exit_code == 0
    assert queue.peek().select(schema.names).to_pylist() == [{"data": b"\xff", "amount": 3.0}]


def test_a_csv_file_has_the_types_of_the_queue(ignis, store, tmp_path):
    queue = make_queue(store)
    file = tmp_path / "orders.csv"
    file.write_text('customer,number,amount\nada,1,2.5\n"",2,\n,3,4\n')

    assert answer(ignis("load", "orders", file, "--json")) == [{"loaded": 3, "left_out": 0}]
    assert queue.peek(9).select(["number", "customer", "amount"]).to_pylist() == [
        {"number": 1, "customer": "ada", "amount": 2.5},
        {"number": 2, "customer": "", "amount": None},
        {"number": 3, "customer": None, "amount": 4.0},
    ]


def test_a_large_csv_file_may_have_texts_of_several_lines(ignis, store, tmp_path):
    queue = make_queue(store)
    text, file = "line\n" * 40, tmp_path / "orders.csv"
    # More than Arrow reads at a time.
    rows = "".join(f'{number},"{text}"\n' for number in range(6000))
    file.write_text("number,customer\n" + rows)

    assert answer(ignis("load", "orders", file, "--json")) == [{"loaded": 6000, "left_out": 0}]
    messages = queue.fire("all").messages
    assert numbers_of(messages) == list(range(6000))
    assert messages.column("customer").unique().to_pylist() == [text]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("number,colour\n1,red\n", "colour"),
        ("number\none\n", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_csv_file_that_does_not_fit_is_refused(ignis, store, tmp_path, text, why):
    queue = make_queue(store)
    file = tmp_path / "orders.csv"
    file.write_text(text)

    assert why in refusal(ignis("load", "orders", file))
    assert queue.peek(9).num_rows == 0


def test_a_time_that_python_lacks_is_shown(ignis, store):
    far = pa.array([253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    many = pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([far], ["x"]))
    named = pa.MapArray.from_arrays([0, 1], ["a"], far)
    rows = pa.table({"at": far, "many": many, "named": named})
    queue = store.create_queue("orders", rows.schema, shards=1)
    queue.load(rows)

    (shown,) = answer(ignis("peek", "orders", "--json"))
    assert shown["at"].startswith("10000-01-01")
    assert shown["many"] == [{"x": shown["at"]}]
    assert shown["named"] == {"a": shown["at"]}
    assert "10000-01-01" in ignis("peek", "orders").stdout
