"""Let the disk begin with the bytes of a file before the file is complete."""

import os
from typing import Any

#: Bytes that are handed to the disk at a time.
PART_BYTES = 8 << 20
#: The most bytes of one call of the system. For more, Linux 6.18 looks for stretches of memory of
#: two megabytes, which took up to twenty times as long as to fill them.
WRITE_BYTES = 1 << 20


class WriteBehind:
    """
    Passes writes on to a sink, and lets the disk begin with them before the file is complete.

    A sync of a whole file would leave the processor idle. It would also hold up others: on ext4,
    the commit of a catalog waits for the bytes of all files that are new in the same transaction.

    Args:
        sink: A writable file of Arrow, which keeps no bytes to itself.
        path: The path of its file.
    """

    def __init__(self, sink: Any, path: str) -> None:
        self._sink = sink
        self._path = path
        self._written = self._handed = 0

    def write(self, data: Any) -> None:
        """Write bytes, and let the disk begin with those that are complete parts."""
        view = memoryview(data).cast("B")
        for begin in range(0, view.nbytes, WRITE_BYTES):
            self._sink.write(view[begin : begin + WRITE_BYTES])
        self._written += view.nbytes
        if self._written - self._handed >= PART_BYTES:
            self._hand_over()

    def flush(self) -> None:
        """Flush the sink."""
        self._sink.flush()

    def _hand_over(self) -> None:
        # Linux begins to write pages whose dropping is advised, and keeps them until that is done.
        if hasattr(os, "posix_fadvise"):
            file = os.open(self._path, os.O_RDONLY)
            try:
                length = self._written - self._handed
                os.posix_fadvise(file, self._handed, length, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
        self._handed = self._written
