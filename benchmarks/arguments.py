"""What benchmarks take on their command lines: the names of some rows, and the place of a store."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_core import Store
from queue_core.values.address import Address


def add_names(parser: argparse.ArgumentParser, what: str, known: Iterable[str]) -> None:
    """Add an argument for names among *known*, as a list; without any, the list has all of them."""
    names = list(known)

    def one(name: str) -> str:
        if name not in names:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
        return name

    # With choices, argparse would check the empty list too, or show it as one of them.
    parser.add_argument(
        what,
        nargs="*",
        type=one,
        default=names,
        metavar=what.removesuffix("s").upper(),
        help=f"some of {', '.join(names)}; by default, all",
    )


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the catalog is; by default, it is on SQLite."""
    parser.add_argument("--postgresql", action="store_true", help="on a server of its own")
    parser.add_argument("--catalog", help="URL of an empty database on PostgreSQL")


@contextmanager
def catalog_of(given: argparse.Namespace) -> Iterator[str | None]:
    """Yield the URL of the database that the options of `add_catalog` ask for; None for SQLite."""
    if not given.postgresql:
        yield given.catalog
        return
    # Not at the top: it would be a part of the memory that some benchmarks print.
    from benchmarks.peers.servers import Servers

    with Servers(Path(tempfile.gettempdir())) as servers:
        yield servers.catalog("benchmark")


@contextmanager
def address_in(folder: str | Path, given: argparse.Namespace) -> Iterator[Address]:
    """Yield the address of a store in a folder, whose catalog is where the options say."""
    with catalog_of(given) as catalog:
        if catalog:
            yield Address.of(catalog=catalog, storage=Path(folder) / "data")
        else:
            yield Address.of(Path(folder) / "store")


@contextmanager
def store_of(given: argparse.Namespace, *, under: str | None = None) -> Iterator[Store]:
    """Yield a new store in a temporary folder, whose catalog is where the options say."""
    with (
        tempfile.TemporaryDirectory(prefix="ignis-", dir=under) as folder,
        address_in(folder, given) as address,
        Store(address) as store,
    ):
        yield store
