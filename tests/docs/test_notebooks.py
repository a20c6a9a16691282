"""Every notebook runs from its first cell to its last, and has the results that it shows."""

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.tree import ROOT

NOTEBOOKS = sorted(ROOT.joinpath("notebooks").glob("*.ipynb"))

#: What must be so when a notebook has run, said in its own words.
HOLDS = {
    "01_quickstart": """
from examples.demo.checks import of_crash, same_delays
from examples.demo.flights import delays_of

assert sorted(reasons["kind"]) == ["exception", "rejected"]
assert list(reasons["reason"].dropna()) == ["ValueError: cannot charge -5.0"]
assert sorted(sidelined["order_id"]) == [2, 3]
assert left == 0
assert (end.loaded, end.deleted, end.sidelined) == (336_776, 328_521, 8_255)
assert same_delays(mean_delays.sort_by([("carrier", "ascending"), ("hour", "ascending")]),
                   delays_of(flights))
assert len(picture.axes) == 5
assert all(of_crash(crashed, january).values()), of_crash(crashed, january)
""",
    "02_life_of_a_message": """
again = flights.slice(0, 5_000)
never = sum(each["dep_time"].null_count for each in (flights, again))

assert (left, too_early, swept, expired) == (0, 0, 5_000, never)
assert (end.waiting, end.in_flight, end.sideline) == (0, 0, 0)
assert end.deleted == tally.consumed == flights.num_rows + 5_000 - never
assert state == "running"
places = ("waiting", "in_flight", "sideline", "deleted", "expired")
totals = {sum(getattr(each, place) for place in places) for each in observer.samples}
assert totals == {0, flights.num_rows, flights.num_rows + 5_000}
assert len(picture.axes) == 2
""",
    "03_three_patterns": """
assert in_order and len(order) == pc.sum(pc.equal(january["day"], 1)).as_py()
assert 50 <= most <= 100
assert waited and sum(received) == 10
assert set(transcontinental[0][0]) and all(d > 2000 for batch in transcontinental for _, d in batch)
assert chosen == sorted(chosen, reverse=True) and min(chosen) > 60
assert first_carriers == ["AS"] and left == 0
assert kept["planes"] == len(pc.unique(january["tailnum"]))
assert kept["carriers"] == len(pc.unique(january["carrier"])) < kept["rows"] < january.num_rows
assert kept["aloft"] == written["aloft"] - 2 * (written["aloft"] - january.num_rows)
assert [len(numbers) for numbers in sent[:3]] == [4, 4, 4]
assert sent[2] == sent[0][2:] + sent[1][:2]
assert len(picture.axes) == 3
""",
    "04_consumers_and_priorities": """
assert rejected == never
assert sum(shares.values()) == 10_000 and min(shares.values()) > 1_000
before = by_priority[by_priority.second < marks["gold stops"]]
assert (before.consumer == "gold").mean() > 0.5
assert set(by_priority.consumer) == {"gold", "silver"}
assert set(by_credit.consumer) == {"first", "second"} and largest <= 500
assert by_credit.messages.sum() == 4_000
assert sum(shown) >= waiting == 1_000
assert "has it to itself" in refused
assert stood_by == 0 and turns[standby] == 200
assert {int(step) for step in traced.steps} >= {*range(1, 13)}
assert len(picture.axes) == 3
""",
    "05_objects_and_care": """
assert isinstance(first[0], Order) and first[0].gifts == ["card"]
assert in_order == sorted(by_shard) == list(range(24)) != by_shard
assert sorted(chosen) == list(range(16, 24)) and sizes == {Size.LARGE}
assert sorted(row.number for row in through_spark) == sorted(chosen)
assert sorted(best) == [5, 40]
assert sorted(refused) == [21, 22, 23] and rest == 0
assert held == {"on_delete": 5, "on_fire": 6}
assert (expired, problems, restored) == (1, 0, 3)
assert len(picture.axes) == 2
""",
    "06_manager_and_leader": """
assert held == before.in_flight == 3_000
assert moved.loc[("sweep", "main", "sideline")].moved == 3_000
assert moved.loc[("shovel", "sideline", "main")].moved == 3_000
assert 0 < took < 400
assert states[1] == "running" != states[0]
assert (end.deleted, end.in_flight, end.sideline, end.waiting) == (total, 0, 0, 0)
assert handled == winter.num_rows - total
assert counted["shovel"] == 1_000
assert len(picture.axes) == 2
""",
    "07_many_readers": """
came = january.filter(pc.less_equal(january["day"], 14))
miles = dict(zip(came["number"].to_pylist(), came["distance"].to_pylist(), strict=True))
assert charged.keys() == miles.keys()
assert all(abs(charged[number] - 0.12 * far) < 1e-9 for number, far in miles.items())
assert back == wrong == pc.sum(pc.and_(
    pc.greater_equal(january["day"], 8), pc.less_equal(january["day"], 11))).as_py()
assert isinstance(ended[0], SubscriptionDetached) and set(lags.state) == {"reading", "detached"}
taken = came.num_rows - len(counted)
assert len(set(counted)) == len(counted) and taken % 300 == 0 and 300 < taken < 14 * 300
assert set(lags[lags.state == "detached"].reader) == {"report"}
assert replayed == pc.sum(pc.equal(january["day"], 7)).as_py() < planned
since_12 = came.filter(pc.greater_equal(came["day"], 12)).num_rows
assert lags[lags.reader == "delays"].behind.iloc[-1] == since_12
assert last.flights[0] == came.num_rows
assert len(picture.axes) == 3
""",
}

# A busy machine needs long to start workers; and what is compiled fast runs sooner.
SPARK_DEFAULTS = """\
spark.python.authenticate.socketTimeout 120s
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""

#: A short notebook, which `make test-all` runs; `test_demo.py` runs the demo of the longest one.
#: Each takes a Spark of its own; `make notebooks` runs all.
SHORT = "05_objects_and_care"

notebooks = pytest.mark.parametrize(
    "notebook", [pytest.param(path, id=path.stem) for path in NOTEBOOKS]
)
runs = pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(
            path,
            id=path.stem,
            marks=pytest.mark.nightly if path.stem == SHORT else pytest.mark.slow,
        )
        for path in NOTEBOOKS
    ],
)


def test_there_is_something_to_hold_of_each_notebook():
    assert [path.stem for path in NOTEBOOKS] == sorted(HOLDS)


@pytest.mark.notebook
@pytest.mark.timeout(1200)
@runs
def test_a_notebook_runs_and_comes_to_what_it_says(notebook, tmp_path, monkeypatch):
    (tmp_path / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    contents = nbformat.read(notebook, as_version=4)
    contents.cells.append(nbformat.v4.new_code_cell(HOLDS[notebook.stem]))
    place = {"metadata": {"path": str(tmp_path)}}

    NotebookClient(contents, timeout=900, kernel_name="python3", resources=place).execute()

    assert contents.cells[-1].execution_count == sum(
        cell.cell_type == "code" for cell in contents.cells
    )


@notebooks
def test_a_notebook_is_kept_with_its_results_and_without_noise(notebook):
    """So that it can be read where it cannot be run."""
    contents = nbformat.read(notebook, as_version=4)
    nbformat.validate(contents)
    code = [cell for cell in contents.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]

    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert {output.output_type for output in outputs} <= {"execute_result", "stream"}
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    assert notebook.stat().st_size < 300_000
    assert str(Path.home()) not in notebook.read_text()
