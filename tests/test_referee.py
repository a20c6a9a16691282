"""Bad histories, each of which the referee must find, and good ones that look bad."""

import pytest

from tests.referee import Rules, check

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
        #: When a copy of the catalog was made.
        self.copied = 0.0

    def tell(self, what, life="one", **details):
        self.now += 1.0
        self.count += 1
        self.entries.append({"at": self.now, "what": what, "life": life, **details})
        return self

    def load(self, first, count=1, *, queue="plain", end="loaded", **more):
        about = {"queue": queue, "first": first, "count": count, "keys": 1}
        self.tell("loading", load=self.count, **about, **more)
        return self.tell(end, load=self.count - 1) if end else self

    def deliver(self, *numbers, queue="plain", life="one", ids=None, attempt=0, **more):
        return self.tell(
            "delivered",
            life,
            queue=queue,
            begun=self.now,
            numbers=list(numbers),
            messages=ids or list(numbers),
            attempts=[attempt] * len(numbers),
            keys=1,
            **{"fired": int(self.now * 1e6), **more},
        )

    def settle(self, *numbers, outcome="delete", queue="plain", life="one", held=None, **more):
        chosen = {name: [] for name in ("delete", "sideline", "reload")} | {outcome: [*numbers]}
        self.tell("settling", life, settle=self.count, queue=queue, **chosen, **more)
        if held == "never":
            return self
        held = len(numbers) if held is None else held
        return self.tell("settled", life, settle=self.count - 1, held=held)

    def fault(self, name="kill", *, of=None, heal=True):
        self.tell("fault", fault=self.count, name=name, **({"of": of} if of else {}))
        return self.tell("healed", fault=self.count - 1) if heal else self

    def die(self, name="one", **more):
        return self.tell("died", name=name, **more)

    def publish(self, *numbers):
        """A query copies messages to another store."""
        self.tell("copying", copy=self.count, numbers=[*numbers], store="far")
        return self.tell("copied", copy=self.count - 1)

    def back_up(self):
        self.now += 1
        self.copied = self.now
        return self

    def restore(self, copied=None, **more):
        """The catalog as it was at the last copy, or at another time, is put back."""
        copied = self.copied if copied is None else copied
        return self.tell("restored", copied=copied, begun=self.now, **more)

    def wait(self, seconds):
        self.now += seconds
        return self

    def verdict(self, queue="plain", *, ends=True):
        """Judge it, by default after all messages that were handed out are deleted."""
        if ends:
            handed = {n for e in self.entries if e["what"] == "delivered" for n in e["numbers"]}
            deleted = {n for e in self.entries if e["what"] == "settling" for n in e["delete"]}
            self.settle(*(handed - deleted), queue=queue, life="last")
        verdict = check(self.entries, RULES)
        return verdict, verdict.queues[queue]


def story():
    return Story()


def far(*numbers):
    """Messages that are loaded into one store, to be copied to another."""
    told = story()
    for number in numbers:
        told.load(number, queue="in", store="near")
    return told


def wrong(counts):
    names = ("lost", "unexpected", "duplicated", "disordered", "together")
    return {name: getattr(counts, name) for name in names if getattr(counts, name)}


def test_a_good_history_is_right():
    verdict, counts = story().load(1, 3).deliver(1, 2, 3).settle(1, 2, 3).verdict()

    assert verdict.right
    assert (counts.attempted, counts.acknowledged, counts.delivered) == (3, 3, 3)


BAD = {
    "a message that never came": ("lost", 2, story().load(1, 3).deliver(1, 3).settle(1, 3)),
    "replaced by one that never came": (
        *("lost", 1),
        story().load(1, queue="latest").load(2, queue="latest", end="unknown"),
    ),
    "a copied message that never came out": (
        *("lost", 2),
        story().load(1, 2, queue="in").deliver(1, queue="out"),
    ),
    "loaded before the copy of a catalog": ("lost", 1, story().load(1).back_up().restore()),
    "loaded after a restore": ("lost", 2, story().load(1).restore(0.5).load(2)),
    "a restore of the target took back only another copy": (
        *("lost", 2),
        far(1, 2).back_up().publish(1).restore(store="far").publish(2),
    ),
    "a restore of another store": ("lost", 1, far(1).restore(0.5, store="far")),
    "nobody loaded it": ("unexpected", 2, story().load(1).deliver(1, 2)),
    "refused for certain": ("unexpected", 1, story().load(1, end="refused").deliver(1)),
    "another content": ("unexpected", 1, story().load(1).deliver(1, altered=[1])),
    "after its deletion, a death and a long time": (
        *("duplicated", 1),
        story().load(1).deliver(1).settle(1).fault(of="one").die().wait(100).deliver(1, life="two"),
    ),
    "two have it at once": ("duplicated", 1, story().load(1).deliver(1).deliver(1, life="two")),
    "swept without a fault": (
        *("duplicated", 1),
        story().load(1).deliver(1).wait(30).deliver(1, life="two"),
    ),
    "the death of another process is no reason": (
        *("duplicated", 1),
        story().load(1).deliver(1).fault(of="three").die("three").deliver(1, life="two"),
    ),
    "a second id, as of a batch that is loaded again": (
        *("duplicated", 1),
        story()
        .load(1, queue="in")
        .deliver(1, queue="out", ids=[7])
        .fault(of="one")
        .die()
        .deliver(1, queue="out", ids=[8], life="two"),
    ),
    "copied before the copy of a catalog": (
        *("duplicated", 2),
        far(1, 2)
        .publish(2)
        .back_up()
        .publish(1)
        .restore(store="near")
        .wait(1)
        .deliver(1, 2, queue="out", ids=[7, 8])
        .deliver(1, 2, queue="out", ids=[9, 10], life="two"),
    ),
    "another one is excused": (
        *("duplicated", 3),
        far(2, 3)
        .tell("excused", numbers=[2], why="swept")
        .deliver(2, 3, queue="out", ids=[7, 8])
        .deliver(2, 3, queue="out", ids=[9, 8], life="two"),
    ),
    "only another copy of it is excused": (
        *("duplicated", 1),
        story().load(1).tell("excused", numbers=[1], why="swept").deliver(1).deliver(1, life="two"),
    ),
    "deleted before the copy of a catalog": (
        *("duplicated", 1),
        story().load(1).deliver(1).settle(1).back_up().restore().deliver(1, life="two"),
    ),
    "deleted perhaps, before the copy of a catalog": (
        *("duplicated", 1),
        story().load(1).deliver(1).settle(1, held=0).back_up().restore().deliver(1, life="two"),
    ),
    "held when a catalog was copied": (
        *("duplicated", 1),
        story().load(1).deliver(1).back_up().restore().deliver(1, life="two"),
    ),
    "settled only after a restore": (
        *("duplicated", 1),
        story().load(1).deliver(1).back_up().restore().settle(1, held=0).deliver(1, life="two"),
    ),
    "a second id that no restore explains": (
        *("duplicated", 1),
        story()
        .load(1)
        .deliver(1, ids=[7])
        .back_up()
        .restore()
        .die()
        .deliver(1, ids=[8], life="two"),
    ),
    "copied again, and one copy handed out twice": (
        *("duplicated", 1),
        far(1)
        .back_up()
        .publish(1)
        .restore(store="near")
        .wait(1)
        .deliver(1, queue="out")
        .deliver(1, queue="out", life="two"),
    ),
    "its process died only later": (
        *("duplicated", 1),
        story().load(1).deliver(1).deliver(1, life="two").wait(1).die(),
    ),
    "before an earlier one of its key": (
        *("disordered", 1),
        story().load(1, 2).deliver(2).settle(2).deliver(1).settle(1),
    ),
    "two of a group in flight at once": (
        *("together", 2),
        story()
        .load(1, 2, queue="grouped")
        .deliver(1, queue="grouped")
        .deliver(2, queue="grouped", life="two")
        .settle(1, queue="grouped"),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_broken_promise_is_found(case):
    fate, number, told = BAD[case]
    queue = {"in": "out"}.get(told.entries[0]["queue"], told.entries[0]["queue"])

    verdict, counts = told.verdict(queue)

    assert wrong(counts) == {fate: 1}
    assert verdict.offenders == [(fate, queue, number)]
    assert not verdict.right


@pytest.mark.parametrize("outcome", ["reload", "sideline"])
def test_a_message_that_was_handed_out_and_not_deleted_is_lost(outcome):
    told = story().load(1, 2).deliver(1, 2).settle(1).settle(2, outcome=outcome)

    verdict, _ = told.verdict(ends=False)
    assert verdict.offenders == [("lost", "plain", 2)]


def test_a_queue_above_its_bound_is_found():
    told = story().load(1).deliver(1).tell("size", queue="bounded", size=501, bound=500)

    verdict, _ = told.verdict()
    assert verdict.overfull == 1
    assert not verdict.right


def test_what_replaced_a_message_and_was_undone_is_no_reason_for_its_loss():
    told = story().load(1, queue="latest").back_up().load(2, queue="latest").restore()

    _, counts = told.verdict("latest")
    assert wrong(counts) == {"lost": 1}
    assert counts.undone == 1


# --- good ones that look bad ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("given back", story().deliver(1).settle(1, outcome="reload").deliver(1, life="two")),
        ("given back", story().deliver(1).settle(1, outcome="sideline").deliver(1, attempt=1)),
        ("its process died", story().deliver(1).die().deliver(1, life="two")),
        (
            "its process died",
            story().deliver(1).settle(1, held="never").die().deliver(1, life="two"),
        ),
        # It was being killed, and took the message before its end.
        ("its process died", story().deliver(1).die(begun=-0.5).deliver(1, life="two")),
        # It was found dead, and its message handed out, before its death was written down.
        ("its process died", story().deliver(1).deliver(1, life="two").die(begun=1.5)),
        ("stop", story().deliver(1).fault("stop").wait(10).deliver(1, life="two")),
        (
            "stop",
            story()
            .deliver(1)
            .fault("stop", heal=False)
            .wait(10)
            .settle(1, held=0)
            .deliver(1, life="two"),
        ),
        ("clock back", story().deliver(1).fault("clock back").deliver(1, life="two")),
        ("restore", story().deliver(1).settle(1).restore(0.5).deliver(1)),
        ("restore", story().deliver(1, ids=[7]).restore(-1.5).deliver(1, ids=[8])),
        ("its process died", story().deliver(1).settle(1, held=0).die().deliver(1, life="two")),
        # A batch was read before a restore, and settled after it.
        (
            "restore",
            story().deliver(1).back_up().restore().settle(1, begun=2.0).deliver(1, life="two"),
        ),
        # It was held when the catalog was copied, and deleted afterwards.
        ("restore", story().deliver(1).back_up().settle(1).restore().deliver(1, life="two")),
        (
            "swept",
            story()
            .tell("excused", numbers=[1], why="swept")
            .deliver(1, ids=[7])
            .deliver(1, ids=[8]),
        ),
        (
            "copied again",
            story().back_up().publish(1).restore().deliver(1, ids=[7]).deliver(1, ids=[8]),
        ),
    ],
)
def test_a_message_that_comes_again_for_a_reason_is_none_too_many(reason, told):
    loaded = Story().wait(-10).load(1)
    told.entries = loaded.entries + told.entries
    verdict, counts = told.verdict()

    assert wrong(counts) == {}
    assert counts.again == 1
    assert verdict.reasons == {reason: 1}


def test_a_message_whose_load_did_not_return_may_come_or_not():
    _, counts = story().load(1, 2, end=None).deliver(1).verdict()

    assert wrong(counts) == {}
    assert (counts.attempted, counts.acknowledged, counts.recovered) == (2, 0, 1)


@pytest.mark.parametrize(
    ("fate", "told"),
    [
        ("replaced", story().load(1, 2, queue="latest").deliver(2, queue="latest")),
        # A version whose load did not return, and which is there.
        (
            "replaced",
            story()
            .load(1, queue="latest")
            .load(2, queue="latest", end=None)
            .deliver(2, queue="latest"),
        ),
        ("undone", story().back_up().load(1).restore()),
        ("undone", story().back_up().load(1, queue="in", store="near").restore(store="near")),
        ("undone", far(1).back_up().publish(1).restore(store="far")),
        # Refused first, and then loaded.
        (None, story().load(1, end="refused").load(1).deliver(1)),
        # Order is not asked for across a fault.
        (None, story().load(1, 2).fault().deliver(2).deliver(1)),
        # Another of the group comes once the first is settled.
        (
            None,
            story()
            .load(1, 2, queue="grouped")
            .deliver(1, queue="grouped")
            .settle(1, queue="grouped")
            .deliver(2, queue="grouped", life="two"),
        ),
    ],
)
def test_a_message_that_does_not_come_for_a_reason_is_not_lost(fate, told):
    queue = {"in": "out"}.get(told.entries[0]["queue"], told.entries[0]["queue"])

    _, counts = told.verdict(queue)

    assert wrong(counts) == {}
    assert [name for name in ("replaced", "undone") if getattr(counts, name)] == [fate] * bool(fate)


def test_each_reader_of_a_log_is_to_get_what_it_chooses():
    rules = Rules(
        sweep_after=10.0, reading={"all": ("plain", "true"), "even": ("plain", "number % 2 = 0")}
    )
    told = story().load(1, 4)
    for queue, numbers in (("plain", [1, 2, 3, 4]), ("all", [1, 2, 4]), ("even", [2, 3])):
        told.deliver(*numbers, queue=queue).settle(*numbers, queue=queue)

    verdict = check(told.entries, rules)

    assert verdict.queues["plain"].right
    assert verdict.queues["even"].attempted == 2
    assert verdict.offenders == [("lost", "all", 3), ("lost", "even", 4), ("unexpected", "even", 3)]
