"""The checks of a copy notice every fault; here, the copy is made by hand."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.crash.spark.copied import at_the_end, count, strays
from tests.crash.spark.scene import CUSTOMERS, SCHEMA, Scene, numbered

pytestmark = pytest.mark.crash
#: Several messages for each customer.
MESSAGES = 3 * CUSTOMERS


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path / "scene", MESSAGES)


def copy(scene, change=lambda rows: rows):
    with scene.store() as store:
        firing = store.queue("in").fire("all")
        store.queue("out").load(change(firing.messages.select(SCHEMA.names)))
        store.queue("in").delete(firing)


def test_a_faithful_copy_is_exact(scene):
    copy(scene)

    counts, wrong = at_the_end(scene)

    assert wrong == []
    assert counts.right
    assert (counts.attempted, counts.acknowledged, counts.delivered) == (MESSAGES,) * 3
    assert (counts.lost, counts.unexpected, counts.duplicated, counts.recovered) == (0, 0, 0, 0)


def test_a_message_in_another_queue_than_its_own_is_counted(tmp_path):
    scene = Scene(tmp_path / "scene", MESSAGES, routes=3)
    with scene.store() as store:
        rows = store.queue("in").fire("all").messages.select(SCHEMA.names)
        own = pc.cast(rows.column("customer"), pa.int64()).to_numpy() % 3
        for name, chosen in (("out0", own != 1), ("out1", own == 1)):
            store.queue(name).load(rows.filter(pa.array(chosen)))

    counts = count(scene)

    assert (counts.lost, counts.duplicated) == (0, 0)
    assert counts.unexpected == (own == 2).sum() > 0


@pytest.mark.parametrize(
    ("change", "amiss"),
    [
        (lambda rows: rows.slice(7), {"lost": 7}),
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 5)]), {"duplicated": 5}),
        (
            lambda rows: pa.concat_tables([rows, numbered(np.arange(MESSAGES, MESSAGES + 3))]),
            {"unexpected": 3},
        ),
        (
            lambda rows: rows.set_column(2, SCHEMA.field(2), pa.repeat("?", len(rows))),
            {"unexpected": MESSAGES},
        ),
    ],
    ids=["lost", "doubled", "made up", "altered"],
)
def test_what_is_amiss_is_counted(scene, change, amiss):
    copy(scene, change)

    before = count(scene)
    counts, wrong = at_the_end(scene)

    assert {name: getattr(counts, name) for name in amiss} == amiss
    assert before == counts
    assert not counts.right
    assert any("not exactly once" in each for each in wrong)


def test_what_is_still_in_is_not_lost_but_has_to_come_out(scene):
    assert (count(scene).delivered, count(scene).lost) == (0, 0)

    _, wrong = at_the_end(scene)

    assert f"in: waiting = {MESSAGES}" in wrong
    assert f"{MESSAGES} messages did not come out" in wrong


def test_what_is_held_by_somebody_is_told(scene):
    with scene.store() as store:
        store.queue("in").fire(10)

    _, wrong = at_the_end(scene)

    assert "in: in_flight = 10" in wrong
    assert "consumers hold 10 messages" in wrong


def test_a_key_whose_messages_change_places_is_noticed(scene):
    copy(scene, lambda rows: rows.take(np.arange(len(rows))[::-1]))

    counts, wrong = at_the_end(scene)

    assert counts.right
    # Of three messages of a key, the second and the third are behind a later one.
    assert wrong == [f"{MESSAGES - CUSTOMERS} messages came out before an earlier one of their key"]


def test_a_file_that_is_gone_is_noticed(scene):
    copy(scene)
    with scene.store() as store:
        [location] = set(store.view("slices", "out").column("location").to_pylist())
        (scene.store_path / location).unlink()

        assert list(strays(store)) == [f"1 files are gone: {location}"]
