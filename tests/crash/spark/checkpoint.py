"""The notes of Spark in a checkpoint, and the loss of its newest notes."""

from __future__ import annotations

from pathlib import Path


def committed(checkpoint: Path) -> int:
    """How many batches Spark has noted as committed."""
    return last(checkpoint / "commits") + 1


def forget_commit(checkpoint: Path) -> str:
    """Lose the newest note of a commit, and return it: Spark runs that batch again."""
    return _forget(checkpoint / "commits", last(checkpoint / "commits"))


def forget_batch(checkpoint: Path) -> str:
    """
    Lose the newest offset and the commit of its batch: Spark asks anew what is in that batch.

    A commit without its offset would stop Spark, which finds its log changed by somebody else.
    """
    batch = last(checkpoint / "offsets")
    lost = [_forget(checkpoint / log, batch) for log in ("commits", "offsets")]
    return " ".join(filter(None, lost))


def last(log: Path) -> int:
    """The number of the newest file of a log; -1 when there is none."""
    numbers = (int(file.name) for file in log.glob("[0-9]*") if file.name.isdigit())
    return max(numbers, default=-1)


def _forget(log: Path, batch: int) -> str:
    if not (log / str(batch)).exists():
        return ""
    (log / str(batch)).unlink()
    (log / f".{batch}.crc").unlink(missing_ok=True)
    return f"{log.name}/{batch}"
