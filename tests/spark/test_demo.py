"""The demo, on a part of its flights: its results are right, and its checks notice errors."""

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.demo import __main__ as demo
from examples.demo import checks, crash, picture, pipeline, report
from examples.demo.flights import delays_of, read_airlines, read_flights
from queue_core import BadOption

pytestmark = pytest.mark.nightly

PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def flights():
    """About two weeks of January."""
    return read_flights().slice(0, 12_000)


@pytest.fixture(scope="module")
def done(spark, flights, tmp_path_factory):
    """The first run."""
    samples = []
    folder = tmp_path_factory.mktemp("demo")
    return pipeline.run(spark, flights, folder / "run", samples.append, files=3)


def test_the_data_are_all_flights_of_the_year():
    flights = read_flights()

    assert flights.num_rows == 336_776
    assert flights["dep_time"].null_count == 8_255
    assert flights["number"].to_pylist() == list(range(336_776))
    assert flights["carrier"].null_count == 0
    assert set(pc.unique(flights["carrier"]).to_pylist()) == set(read_airlines())
    assert "" not in pc.unique(flights["tailnum"]).to_pylist()


def test_the_mean_delays_are_those_of_the_flights_that_departed():
    flights = pa.table(
        {
            "number": range(4),
            "carrier": ["UA", "AA", "UA", "UA"],
            "hour": [5, 5, 5, 5],
            "dep_time": [500, 501, None, 502],
            "dep_delay": [10, 1, None, -4],
        }
    )

    assert delays_of(flights).to_pylist() == [
        {"carrier": "AA", "hour": 5, "flights": 1, "delay": 1.0},
        {"carrier": "UA", "hour": 5, "flights": 2, "delay": 3.0},
    ]


def test_the_first_run_holds_what_it_says(done, flights):
    assert checks.of_run(done, flights) == dict.fromkeys(checks.of_run(done, flights), True)
    assert done.samples[-1].sidelined == flights["dep_time"].null_count > 0
    assert done.batches["load"] == 3
    assert sum(done.delays["flights"].to_pylist()) == done.samples[-1].deleted


def test_the_first_run_would_notice_what_does_not_hold(done, flights):
    end = done.samples[-1]
    reasons = dict(done.reasons)
    reasons.popitem()
    delays = done.delays.set_column(3, "delay", pc.add(done.delays["delay"], 1e-6))
    wrong = [
        replace(done, samples=[replace(end, loaded=end.loaded + 1)]),
        replace(done, samples=[replace(end, deleted=end.deleted - 1)]),
        replace(done, samples=[replace(end, in_flight=1)]),
        replace(done, reasons=reasons),
        replace(done, delays=delays),
        replace(done, delays=done.delays.slice(1)),
    ]

    assert [all(checks.of_run(run, flights).values()) for run in wrong] == [False] * 6


def test_the_picture_shows_every_carrier(done, tmp_path):
    names = read_airlines()
    figure = picture.draw(done.samples, done.delays, names)
    picture.save(figure, tmp_path / "flights.png")

    backlog, _, hours, *_ = figure.axes
    shown = {label.get_text() for label in hours.get_yticklabels()}
    assert shown == {names[code] for code in set(done.delays["carrier"].to_pylist())}
    assert len(backlog.collections) == 2
    assert (tmp_path / "flights.png").read_bytes().startswith(PNG)


def test_the_table_counts_each_reason(done):
    cells = [list(column.cells) for column in report.of_run(done).columns]
    table = dict(zip(*cells, strict=True))

    assert table["  loaded"] == "12,000"
    assert {f"    {reason}": f"{count:,}" for reason, count in done.reasons.items()}.items() <= (
        table.items()
    )


@pytest.mark.crash
def test_a_driver_that_is_killed_loses_and_doubles_nothing(flights, tmp_path):
    (tmp_path / "crash").mkdir()
    seen = []
    done = crash.crash(flights, tmp_path / "crash", seen.append, batches=6)

    assert checks.of_crash(done, flights) == dict.fromkeys(checks.of_crash(done, flights), True)
    assert done.processes > 2
    assert 0 < done.seen_again <= done.killed.in_flight
    assert seen[-1] == done.ended

    end = done.ended
    wrong = [
        replace(done, lost=1),
        replace(done, doubled=1),
        replace(done, killed=end),
        replace(done, ended=replace(end, waiting=1)),
        replace(done, ended=replace(end, deleted=end.deleted + 1)),
        replace(done, sidelined=done.sidelined[1:]),
        replace(done, failures=done.failures + 1),
    ]
    assert [all(checks.of_crash(each, flights).values()) for each in wrong] == [False] * 7


def test_the_demo_fails_when_a_check_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "first_run", lambda *_: True)
    monkeypatch.setattr(demo, "second_run", lambda *_: True)
    assert demo.main() == 0
    printed = capsys.readouterr().out
    assert f"http://127.0.0.1:8413:\n  {Path(sys.executable).parent / 'ignis'}" in printed
    assert f"ignis --path {tmp_path / 'out' / 'demo' / 'run'} console" in printed

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "console.png").touch()
    monkeypatch.setattr(
        demo, "second_run", lambda console, *_: demo.print_checks(console, {"all is well": False})
    )
    assert demo.main() == 1
    printed = capsys.readouterr().out
    assert "failed: all is well" in printed
    assert "http://127.0.0.1:8413 (docs/console.png shows it):\n" in printed


def test_the_demo_removes_no_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")

    with pytest.raises(BadOption, match=r"thesis\.txt, which is not the demo's"):
        demo.empty_folder(tmp_path / "out")

    assert (tmp_path / "out" / "thesis.txt").read_text() == "years of work"


def test_the_demo_begins_anew(tmp_path):
    (demo.empty_folder(tmp_path / "out") / "run").mkdir()

    assert list(demo.empty_folder(tmp_path / "out").iterdir()) == []
