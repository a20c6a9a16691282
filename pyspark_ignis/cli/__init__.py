"""The command line `ignis`: what a store holds, and the verbs that people call by hand.

Imports no Spark: it must answer at once, and on machines that have none.
"""

from pyspark_ignis.cli import change, look, maintenance  # noqa: F401 - each adds its commands
from pyspark_ignis.cli.app import app


def main() -> None:
    """The entry point of the command `ignis`."""
    app()
