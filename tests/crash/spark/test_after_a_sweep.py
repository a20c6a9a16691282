"""
What was swept, or given back, while its driver was dead.

No sweep takes what a query holds whose checkpoint asks for it again. A person who says so decides
that the driver does not come back. What the driver had published by then is out, and comes once
more when the swept messages are shovelled: from there on it is at least once.
"""

from dataclasses import replace

import pytest

from tests.crash.spark.copied import at_the_end, count
from tests.crash.spark.driver import Job
from tests.crash.spark.lives import Life
from tests.crash.spark.scene import Scene

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.slow,
]
MESSAGES = 20_000
LIMIT = 2_000


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path / "scene", MESSAGES)


@pytest.fixture
def job(scene):
    return Job.of(scene, limit=LIMIT)


def die(scene, job, fault):
    with Life(replace(job, fault=f"{fault}=session"), scene.said) as life:
        assert life.wait() == -9, life.last_words()


def finish(scene, job):
    with Life(job, scene.said) as life:
        assert life.wait() == 0, life.last_words()


def test_what_was_published_before_it_was_swept_comes_twice_if_shovelled(scene, job):
    die(scene, job, "sink.committed:2")
    with scene.store() as store:
        assert store.queue("in").sweep(0, dead_after=0) == 0
        assert store.queue("in").sweep(dead_after=0, consumer="copier") == LIMIT
    finish(scene, job)

    once = count(scene)
    assert (once.ok, once.lost, once.duplicated) == (MESSAGES, 0, 0)

    with scene.store() as store:
        assert store.queue("in").shovel() == LIMIT
    finish(scene, job)

    twice = count(scene)
    assert (twice.ok, twice.lost, twice.duplicated) == (MESSAGES, 0, LIMIT)


def test_what_was_swept_before_it_was_published_comes_once_when_shovelled(scene, job):
    die(scene, job, "sink.before_commit:2")
    with scene.store() as store:
        assert store.queue("in").sweep(0, dead_after=0) == 0
        assert store.queue("in").sweep(dead_after=0, consumer="copier") == LIMIT
    finish(scene, job)

    waiting = count(scene)
    assert (waiting.ok, waiting.lost) == (MESSAGES - LIMIT, 0)

    with scene.store() as store:
        assert store.queue("in").shovel() == LIMIT
    finish(scene, job)

    counts, wrong = at_the_end(scene, rescued=True)
    assert wrong == []
    assert counts.ok == MESSAGES


def test_what_nobody_has_seen_is_given_back_and_comes_once(scene, job):
    """Killed before the first note: the next life makes up another name, and cannot know of it."""
    nameless = replace(job, consumer=None)
    die(scene, nameless, "source.fired")
    finish(scene, nameless)

    held = count(scene)
    assert (held.ok, held.lost) == (MESSAGES - LIMIT, 0)

    with scene.store() as store:
        assert store.recover(dead_after=0) == LIMIT
    finish(scene, nameless)

    counts, wrong = at_the_end(scene, rescued=True)
    assert wrong == []
    assert counts.ok == MESSAGES
