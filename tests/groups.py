"""Which tests with Spark run in one process, one after another, and share its session."""

import zlib

#: Each group has a session of its own, so each takes a processor and a gigabyte.
GROUPS = 2


def spark_group(file: str) -> str:
    """Return the group of the tests in *file*, the name of a file."""
    return f"spark {zlib.crc32(file.encode()) % GROUPS}"
