"""Touches wake those who watch a file, in any process."""

import os
import sys
import threading
import time

import pytest

from queue_core.catalog.databases.ear import Ear
from queue_core.catalog.databases.touches import Touches, touch
from tests.forks import in_a_fork

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have no inotify"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

LONG = 30.0


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "file"
    made.touch()
    return str(made)


@pytest.fixture
def touches(path):
    opened = Touches(path)
    yield opened
    opened.close()


def test_touches_that_come_together_are_heard_once(path, touches):
    assert not touches.hear(0.0)
    touch(path)
    touch(path)

    assert touches.hear(LONG)
    assert not touches.hear(0.0)


def test_a_touch_of_another_process_is_heard(path, touches):
    in_a_fork(lambda: touch(path))

    assert touches.hear(LONG)


def test_all_threads_hear_of_one_touch(path):
    ear, hearers = Ear(), [object() for _ in range(3)]
    for hearer in hearers:
        ear.join(hearer, lambda: Touches(path))
    heard, end = [], time.monotonic() + LONG
    threads = [
        threading.Thread(target=lambda one=one: heard.append(ear.wait(one, end))) for one in hearers
    ]
    for thread in threads:
        thread.start()
    touch(path)
    for thread in threads:
        thread.join(LONG)

    assert heard == [{""}] * 3
    for hearer in hearers:
        ear.leave(hearer)


def test_who_is_interrupted_as_it_begins_to_hear_leaves_that_to_others(path):
    ear, hearers = Ear(), [object() for _ in range(2)]
    for hearer in hearers:
        ear.join(hearer, lambda: Touches(path))
    release = ear._changed.release

    def interrupted():
        release()
        ear._changed.release = release
        raise KeyboardInterrupt

    ear._changed.release = interrupted
    with pytest.raises(KeyboardInterrupt):
        ear.wait(hearers[0], time.monotonic() + LONG)
    touch(path)

    assert ear.wait(hearers[1], time.monotonic() + LONG) == {""}
    for hearer in hearers:
        ear.leave(hearer)


def test_a_touch_changes_the_times_alone(path):
    before = os.stat(path)
    os.utime(path, (1, 1))
    touch(path)

    after = os.stat(path)
    assert after.st_mtime > 1
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)


def test_a_file_that_is_not_there_cannot_be_watched(path):
    touch(path + ".gone")

    with pytest.raises(OSError, match="no watch"):
        Touches(path + ".gone")
