"""What all benchmarks with several rows take on their command line: the names of some rows."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


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
