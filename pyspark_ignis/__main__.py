"""The command `ignis`, also as ``python -m pyspark_ignis``."""

import sys

#: What the command line needs beside the queue.
_NEEDED = ("rich", "typer")


def main() -> None:
    """Run the command `ignis`, or say what is missing for it."""
    try:
        from pyspark_ignis.cli import app
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(
            "ignis: the command line needs typer and rich, which are not installed: "
            "pip install 'ignis-queue[cli]'"
        )
    app()


if __name__ == "__main__":
    main()
