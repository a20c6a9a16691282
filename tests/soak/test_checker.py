"""Bad histories, each of which the checker must find, and good ones that look bad."""

import pytest

from tests.soak.checker import Rules, check

RULES = Rules(
    sweep_after=10.0,
    ordered=frozenset({"plain", "grouped"}),
    replacing=frozenset({"latest"}),
    grouped=frozenset({"grouped"}),
    copied={"in": "out"},
)


class Story:
    """A history, told in order: every call takes a second."""

    def __init__(self):
        self.now = 0.0
        self.entries = []
        self.count = 0

    def tell(self, what, life="one", **details):
        self.now += 1.0
        self.count += 1
        self.entries.append({"at": self.now, "what": what, "life": life, **details})
        return self

    def load(self, first, count=1, *, queue="plain", keys=1, end="loaded"):
        self.tell("loading", load=self.count, queue=queue, first=first, count=count, keys=keys)
        if end:
            self.tell(end, load=self.count - 1)
        return self

    def deliver(self, *numbers, queue="plain", life="one", ids=None, keys=1, attempt=0, **more):
        return self.tell(
            "delivered",
            life,
            queue=queue,
            begun=self.now,
            numbers=list(numbers),
            messages=ids or list(numbers),
            attempts=[attempt] * len(numbers),
            keys=keys,
            **{"fired": int(self.now * 1e6), **more},
        )

    def settle(self, *numbers, outcome="delete", queue="plain", life="one", held=None):
        chosen = {name: [] for name in ("delete", "sideline", "reload")} | {outcome: [*numbers]}
        self.tell("settling", life, settle=self.count, queue=queue, **chosen)
        if held != "never":
            held = len(numbers) if held is None else held
            self.tell("settled", life, settle=self.count - 1, held=held)
        return self

    def fault(self, name="kill", *, of=None, heal=True):
        self.tell("fault", fault=self.count, name=name, **({"of": of} if of else {}))
        return self.tell("healed", fault=self.count - 1) if heal else self

    def wait(self, seconds):
        self.now += seconds
        return self

    def verdict(self, queue="plain"):
        verdict = check(self.entries, RULES)
        return verdict, verdict.queues[queue]


def story():
    return Story()


def restored(told, copied):
    """The catalog as it was at *copied* is put back."""
    begun = told.now
    return told.tell("restored", copied=copied, begun=begun)


def wrong(counts):
    names = ("lost", "unexpected", "duplicated", "disordered", "together")
    return {name: getattr(counts, name) for name in names if getattr(counts, name)}


def test_a_good_history_is_right():
    verdict, counts = story().load(1, 3).deliver(1, 2, 3).settle(1, 2, 3).verdict()

    assert verdict.right
    assert (counts.attempted, counts.acknowledged, counts.delivered) == (3, 3, 3)


# --- bad ones -------------------------------------------------------------------------------------


def test_a_message_that_never_came_is_lost():
    verdict, counts = story().load(1, 3).deliver(1, 3).settle(1, 3).verdict()

    assert wrong(counts) == {"lost": 1}
    assert verdict.offenders == [("lost", "plain", 2)]
    assert not verdict.right


def test_a_copied_message_that_never_came_out_is_lost():
    _, counts = story().load(1, 2, queue="in").deliver(1, queue="out").verdict("out")

    assert wrong(counts) == {"lost": 1}


def test_a_message_that_nobody_loaded_is_unexpected():
    assert wrong(story().load(1).deliver(1, 2).verdict()[1]) == {"unexpected": 1}


def test_a_message_whose_load_was_refused_for_certain_is_unexpected():
    told = story().load(1, end="refused").deliver(1)

    assert wrong(told.verdict()[1]) == {"unexpected": 1}


def test_a_message_with_another_content_is_unexpected():
    assert wrong(story().load(1).deliver(1, altered=[1]).verdict()[1]) == {"unexpected": 1}


def test_a_message_that_comes_after_its_deletion_is_doubled():
    """Although its process died, and much time went by."""
    told = story().load(1).deliver(1).settle(1).fault(of="one").tell("died", name="one")

    assert wrong(told.wait(100).deliver(1, life="two").verdict()[1]) == {"duplicated": 1}


def test_a_message_that_two_have_at_once_is_doubled():
    told = story().load(1).deliver(1).deliver(1, life="two")

    assert wrong(told.verdict()[1]) == {"duplicated": 1}


def test_a_message_that_is_swept_without_a_fault_is_doubled():
    told = story().load(1).deliver(1).wait(30).deliver(1, life="two")

    assert wrong(told.verdict()[1]) == {"duplicated": 1}


def test_the_death_of_another_process_is_no_reason():
    told = story().load(1).deliver(1).fault(of="three").tell("died", name="three")

    assert wrong(told.deliver(1, life="two").verdict()[1]) == {"duplicated": 1}


def test_a_message_with_a_second_id_is_doubled():
    """As one that a replayed batch has loaded again, even after a death."""
    told = story().load(1, queue="in").deliver(1, queue="out", ids=[7])
    told.fault(of="one").tell("died", name="one").deliver(1, queue="out", ids=[8], life="two")

    assert wrong(told.verdict("out")[1]) == {"duplicated": 1}


def test_a_message_before_an_earlier_one_of_its_key_is_disordered():
    told = story().load(1, 2).deliver(2).settle(2).deliver(1).settle(1)

    verdict, counts = told.verdict()
    assert wrong(counts) == {"disordered": 1}
    assert verdict.offenders == [("disordered", "plain", 1)]


def test_two_of_a_group_in_flight_at_once_are_found():
    told = story().load(1, 2, queue="grouped").deliver(1, queue="grouped")
    told.deliver(2, queue="grouped", life="two").settle(1, queue="grouped")

    assert wrong(told.verdict("grouped")[1]) == {"together": 1}


def test_a_queue_above_its_bound_is_found():
    told = story().load(1).deliver(1).tell("size", queue="bounded", size=501, bound=500)

    verdict, _ = told.verdict()
    assert verdict.overfull == 1
    assert not verdict.right


def test_a_message_that_was_replaced_by_one_that_never_came_is_lost():
    told = story().load(1, queue="latest").load(2, queue="latest", end="unknown")

    assert wrong(told.verdict("latest")[1]) == {"lost": 1}


def test_a_restore_excuses_nothing_that_was_loaded_before_the_copy():
    told = story().load(1)
    copied = told.wait(1).now
    assert wrong(restored(told, copied).verdict()[1]) == {"lost": 1}


def test_a_restore_excuses_nothing_that_was_deleted_before_the_copy():
    told = story().load(1).deliver(1).settle(1)
    restored(told, told.wait(1).now)

    assert wrong(told.deliver(1, life="two").verdict()[1]) == {"duplicated": 1}


def test_a_restore_excuses_nothing_that_was_loaded_after_it():
    told = story().load(1)
    restored(told, copied=0.5).load(2)

    verdict, counts = told.verdict()
    assert wrong(counts) == {"lost": 1}
    assert verdict.offenders == [("lost", "plain", 2)]


def test_what_replaced_a_message_and_was_undone_is_no_reason_for_its_loss():
    told = story().load(1, queue="latest")
    copied = told.wait(1).now
    told.load(2, queue="latest")

    counts = restored(told, copied).verdict("latest")[1]
    assert wrong(counts) == {"lost": 1}
    assert counts.undone == 1


# --- good ones that look bad ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "given back",
            story().load(1).deliver(1).settle(1, outcome="reload").deliver(1, life="two"),
        ),
        (
            "given back",
            story().load(1).deliver(1).settle(1, outcome="sideline").deliver(1, attempt=1),
        ),
        (
            "its process died",
            story().load(1).deliver(1).tell("died", name="one").deliver(1, life="two"),
        ),
        (
            "its process died",
            story()
            .load(1)
            .deliver(1)
            .settle(1, held="never")
            .tell("died", name="one")
            .deliver(1, life="two"),
        ),
        (
            # It was being killed, and took the message before its end.
            "its process died",
            story().load(1).deliver(1).tell("died", name="one", begun=1.5).deliver(1, life="two"),
        ),
        (
            # It was found dead, and its message handed out, before its death was written down.
            "its process died",
            story().load(1).deliver(1).deliver(1, life="two").tell("died", name="one", begun=3.5),
        ),
        ("stop", story().load(1).deliver(1).fault("stop").wait(10).deliver(1, life="two")),
        (
            "stop",
            story()
            .load(1)
            .deliver(1)
            .fault("stop", heal=False)
            .wait(10)
            .settle(1, held=0)
            .deliver(1, life="two"),
        ),
        ("clock back", story().load(1).deliver(1).fault("clock back").deliver(1, life="two")),
        ("restore", restored(story().load(1).deliver(1).settle(1), 2.5).deliver(1)),
        ("restore", restored(story().load(1).deliver(1, ids=[7]), 0.5).deliver(1, ids=[8])),
    ],
)
def test_a_message_that_comes_again_for_a_reason_is_none_too_many(reason, told):
    verdict, counts = told.verdict()

    assert wrong(counts) == {}
    assert counts.again == 1
    assert verdict.reasons == {reason: 1}


def test_a_message_whose_load_did_not_return_may_come_or_not():
    _, counts = story().load(1, 2, end=None).deliver(1).verdict()

    assert wrong(counts) == {}
    assert (counts.attempted, counts.acknowledged, counts.recovered) == (2, 0, 1)


def test_a_load_that_was_refused_first_and_then_loaded_is_no_surprise():
    told = story().load(1, end="refused").load(1).deliver(1)

    assert wrong(told.verdict()[1]) == {}


def test_a_message_that_a_newer_one_replaced_is_not_lost():
    told = story().load(1, 2, queue="latest").deliver(2, queue="latest")

    counts = told.verdict("latest")[1]
    assert wrong(counts) == {}
    assert counts.replaced == 1


def test_a_load_that_a_restore_undid_is_counted_apart():
    told = story()
    copied = told.wait(1).now
    counts = restored(told.load(1), copied).verdict()[1]

    assert wrong(counts) == {}
    assert counts.undone == 1


def test_order_is_not_asked_for_across_a_fault():
    told = story().load(1, 2).fault().deliver(2).deliver(1)

    assert wrong(told.verdict()[1]) == {}


def test_another_of_the_group_may_come_once_the_first_is_settled():
    told = story().load(1, 2, queue="grouped").deliver(1, queue="grouped")
    told.settle(1, queue="grouped").deliver(2, queue="grouped", life="two")

    assert wrong(told.settle(2, queue="grouped", life="two").verdict("grouped")[1]) == {}
