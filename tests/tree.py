"""Where the tree of the project is, and what is in it."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
#: All packages that are installed.
PACKAGES = (
    *("queue_core", "ignis_source", "ignis_sink"),
    *("ignis_cli", "ignis_console", "ignis_airflow", "pyspark_ignis"),
)
#: Modules whose names are public.
PUBLIC_MODULES = ("queue_core", "queue_core.testing", "pyspark_ignis")
