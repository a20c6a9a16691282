"""Named crash points: no-ops until a test arms one.

Points are before and after each step that a crash can interrupt: a file write, a sync, a commit.
``IGNIS_FAULT=load.segment_written`` arms one for a process and its children; a number after a colon
selects the n-th passage (``settle.before_commit:3``), and an action after ``=`` selects how it
dies: ``exit`` (this process, by SIGKILL: the default), ``session`` (all processes of this session,
so that a Spark driver dies with its workers) or ``raise`` (an `InjectedFault`, for tests in one
process).
"""

import os
import signal
import sys
from pathlib import Path

#: Every point, and the state when a process reaches it.
POINTS = {
    "open.before_commit": "the tables of a new catalog are made in the open transaction",
    "open.committed": "a new catalog is there, without queues",
    "migrate.before_commit": "an older catalog has this format in the open transaction",
    "migrate.committed": "an older catalog has this format",
    "create.before_commit": "a new queue is written in the open transaction",
    "create.committed": "a new queue is there; its creator does not know yet",
    "subscribe.before_commit": "a new subscription is written in the open transaction",
    "subscribe.committed": "a new subscription is there; its creator does not know yet",
    "replay.before_commit": "a new replay is written in the open transaction",
    "replay.committed": "a new replay is there; its creator does not know yet",
    "clone.before_commit": "a new queue with copies of slices is written in the open transaction",
    "clone.committed": "a new queue with copies of slices is there",
    "snapshot.before_commit": "a subscription's state is copied in the open transaction",
    "snapshot.committed": "a subscription's state is kept; its caller does not know yet",
    "seek.before_commit": "a subscription is at another place in the open transaction",
    "seek.committed": "a subscription is at another place; its caller does not know yet",
    "deactivate.before_commit": "a queue is deactivated in the open transaction",
    "deactivate.committed": "a queue is deactivated; its caller does not know yet",
    "drop.before_commit": "everything of a queue is removed in the open transaction",
    "drop.committed": "a queue is gone, and its name is free",
    "load.before_segment": "nothing written yet",
    "load.writing": "a part of the rows is in the segment file",
    "load.segment_written": "the segment file is written, not yet synced",
    "load.segment_synced": "file and folder are durable; no slice refers to them",
    "load.before_commit": "the slices are written in the open transaction",
    "load.waiting": "a queue has no room; the load waits in line, and nothing is loaded",
    "load.offered": "a rendezvous is offered: its messages are loaded, and its caller waits",
    "load.before_withdrawal": "offered messages that nobody fired are removed in the transaction",
    "load.withdrawn": "offered messages are withdrawn; their caller does not know yet",
    "load.committed": "the load is done; its caller does not know yet",
    "policy.rewritten": "queued messages are written with new values; no slice refers to them",
    "fire.before_commit": "the slices are the ticket's in the open transaction",
    "fire.committed": "fired; nobody has seen the messages yet",
    "settle.before_commit": "outcomes are written in the open transaction",
    "settle.committed": "settled; its caller does not know yet",
    "acknowledge.before_commit": "a committed batch's rows are removed in the open transaction",
    "acknowledge.committed": "a committed batch's rows are gone",
    "reset.before_commit": "kept messages wait again in the open transaction",
    "reset.committed": "kept messages wait again",
    "shovel.before_commit": "slices are in main in the open transaction",
    "shovel.committed": "some slices are in main; there may be more",
    "intervene.before_commit": "a person's act is written in the open transaction",
    "intervene.committed": "a person's act is done; its caller does not know yet",
    "retry.before_commit": "slices whose time has come are in main in the open transaction",
    "retry.committed": "slices whose time has come are in main; there may be more",
    "edit.before_commit": "an edited message is in main in the open transaction",
    "edit.committed": "an edited message is in main; its caller does not know yet",
    "redrive.before_commit": "a part of the sideline is moved in the open transaction",
    "redrive.committed": "a part of the sideline is moved; there may be more",
    "sweep.before_commit": "slices are in the sideline in the open transaction",
    "sweep.committed": "a batch is in the sideline; there may be more",
    "abandon.before_commit": "messages fired too often are set aside in the open transaction",
    "abandon.committed": "a batch of messages fired too often is set aside; there may be more",
    "take_in.before_commit": "messages of a log become slices in the open transaction",
    "take_in.committed": "messages of a log wait in a subscription",
    "detach.before_commit": "a subscription is detached in the open transaction",
    "detach.committed": "a subscription is detached; if it is to be dropped, it is not yet",
    "attach.before_commit": "a detached subscription reads again in the open transaction",
    "attach.committed": "a detached subscription reads its log again",
    "trim.before_commit": "the beginning of a log is removed in the open transaction",
    "trim.committed": "the beginning of a log is gone",
    "expire.before_commit": "expired messages are removed in the open transaction",
    "expire.committed": "a batch of expired messages is gone",
    "lose.before_commit": "a dead consumer's messages count as lost in the open transaction",
    "lose.committed": "a dead consumer's messages count as lost",
    "recover.before_commit": "unseen tickets are given back in the open transaction",
    "recover.committed": "unseen tickets are given back",
    "quarantine.reported": "a damaged segment is reported in the storage; not in the catalog yet",
    "quarantine.before_commit": "a damaged segment's slices are set apart in the open transaction",
    "quarantine.committed": "a damaged segment's slices are set apart",
    "repair.before_commit": "messages set apart are loaded again in the open transaction",
    "repair.committed": "messages set apart are loaded again",
    "vacuum.before_commit": "files are condemned in the open transaction",
    "vacuum.condemned": "files are condemned in the catalog, and still there",
    "vacuum.removing": "one more of the condemned files is removed",
    "vacuum.removed": "all files are removed; the catalog still knows them as condemned",
    "backup.copied": "a new backup is complete but for its manifest; an earlier one is whole",
    "restore.copied": "segments of a backup are in the storage; the catalog is as it was",
    "restore.before_commit": "the rows of a backup are in the catalog in the open transaction",
    "restore.committed": "the catalog is that of the backup; the storage's mark has an older token",
    "compact.written": "messages are also in a new segment, which no slice refers to",
    "compact.before_commit": "slices of the new segment replace others in the open transaction",
    "compact.committed": "messages are in a new segment, under their old ids",
    "merge.written": "messages of a log are also in a new segment, which nothing names",
    "merge.before_commit": "a row of a log replaces others in the open transaction",
    "merge.committed": "a row of a log has replaced others",
    "source.before_fire": "latestOffset found nothing pending",
    "source.fired": "fired, and Spark has not logged the offset",
    "source.planning": "the offset is logged; partitions are being planned",
    "source.planned": "the ticket is marked as planned; nothing was read",
    "source.reading": "a task has read its first rows",
    "task.before_claim": "a round of side tasks is claimed in the open transaction",
    "task.claimed": "a round of side tasks is claimed, and Spark has not logged the offset",
    "task.done": "a share of a side task is done; the catalog does not know that it is",
    "sink.writing": "a task holds rows, and nothing is staged",
    "sink.staged": "a task has staged its segment",
    "sink.before_commit": "all tasks are done; nothing is published",
    "sink.committed": "the batch is published; Spark does not know yet",
}

#: How a process can die at a point.
ACTIONS = ("exit", "session", "raise")


class InjectedFault(BaseException):
    """Raised at an armed point whose action is ``raise``; nothing in the product catches it."""


class _Armed:
    name: str | None = None
    passages = 1
    action = "exit"


def arm(text: str | None) -> None:
    """Arm the point that *text* describes, or disarm with None; raises ValueError if it cannot."""
    if not text:
        _Armed.name = None
        return
    point_and_count, _, action = text.partition("=")
    name, _, count = point_and_count.partition(":")
    if name not in POINTS:
        raise ValueError(f"unknown fault point {name!r}")
    count, action = count or "1", action or "exit"
    if not count.isdecimal() or int(count) < 1 or action not in ACTIONS:
        raise ValueError(f"fault {text!r}: use point, point:passage or point=action, of {ACTIONS}")
    _Armed.name, _Armed.passages, _Armed.action = name, int(count), action


def point(name: str) -> None:
    """Die here if a test has armed this point."""
    if _Armed.name == name:
        _Armed.passages -= 1
        if _Armed.passages == 0:
            _die(name)


def _die(name: str) -> None:
    if _Armed.action == "raise":
        _Armed.name = None
        raise InjectedFault(name)
    sys.stderr.write(f"fault point {name}: killed\n")
    sys.stderr.flush()
    if _Armed.action == "session":
        _kill_session()
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_session() -> None:
    """Kill every other process of this session: a Spark driver has workers in several groups."""
    mine = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if os.getsid(int(entry.name)) == mine:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


arm(os.environ.get("IGNIS_FAULT"))
