"""The deaths of a page: each life of its query ends by SIGKILL; the last one runs to its end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.connectors.driver import Part
from tests.crash.spark import checkpoint
from tests.crash.spark.lives import Life, wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a life: at a point of the source, or once the table has another batch."""

    point: str | None = None
    #: Whether the checkpoint forgets the newest commit.
    forget: bool = False


#: Fired and not noted; rows in a task; a batch was written; the same, and a note is lost.
DEATHS = (
    Death(point="source.fired:2=session"),
    Death(point="source.reading:2=session"),
    Death(),
    Death(forget=True),
)


def live_through(
    part: Part,
    notes: Path,
    written: Callable[[], int],
    *,
    said: Path,
    deaths: Iterable[Death] = DEATHS,
    until: int,
) -> list[str]:
    """
    Run the part of a page that writes, kill it, and so on; then run the page to its end.

    Args:
        part: The blocks that come after those that load.
        notes: The query's checkpoint.
        written: Returns how much the target has, such as the number of its commits.
        said: The file for what the drivers write to stderr.
        deaths: How the lives end.
        until: The block after the last of the part that is killed.

    Returns:
        One line for each life: how it ended, the batches of the checkpoint, what was written.
    """
    report = []
    for death in deaths:
        _live(replace(part, end=until, fault=death.point), death, notes, written, said)
        lost = checkpoint.forget_commit(notes) if death.forget else ""
        told = death.point or "a batch was written"
        batches = checkpoint.committed(notes)
        report.append(
            f"killed: {told}; lost: {lost or '-'}; batches {batches}; {written()} written"
        )
    with Life(part, said, "tests.connectors.driver") as life:
        assert life.wait() == 0, life.last_words()
    report.append(f"to its end; noted {checkpoint.committed(notes)}; written {written()}")
    return report


def _live(part: Part, death: Death, notes: Path, written: Callable[[], int], said: Path) -> None:
    with Life(part, said, "tests.connectors.driver") as life:
        if death.point:
            assert life.wait() == -signal.SIGKILL, life.last_words()
            return
        life.wait_until_up()
        before, committed = written(), checkpoint.committed(notes)
        wait_for(lambda: written() > before or not life.is_alive(), "another batch")
        if death.forget:
            enough = lambda: checkpoint.committed(notes) > committed  # noqa: E731
            wait_for(lambda: enough() or not life.is_alive(), "its note")
        assert life.is_alive(), f"the driver ended by itself:\n{life.last_words()}"
