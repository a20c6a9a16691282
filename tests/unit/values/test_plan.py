"""Decisions agree with models that look at one message at a time."""

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.values import plan
from queue_core.values.model import Chunk
from tests.factories import make_segment, make_slice

AMOUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 12))


@st.composite
def shards(draw, segments=3):
    """
    Slices of one shard, in order of their positions.

    The rows of each segment stand side by side and are dealt out among a few slices or are gone,
    as it happens when messages are fired, reloaded and deleted one by one. In a segment into which
    slices were written anew, those of each slice stand behind those of another.
    """
    slices, place = [], 0
    for segment in range(1, draw(st.integers(1, segments)) + 1):
        owners = draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
        first_row = draw(st.integers(0, 5))
        anew = draw(st.booleans())
        for owner in (1, 2, 3):
            places = [at for at, its in enumerate(owners) if its == owner]
            if places:
                slices.append(
                    make_slice(
                        [first_row + at for at in places],
                        position=place + places[0],
                        segment_id=segment,
                        bytes=draw(st.integers(0, 10)) * len(places),
                    )
                )
                first_row += len(owners) if anew else 0
        place += len(owners)
    return sorted(slices, key=lambda piece: piece.position)


def places_of(taken):
    """The place of each message, and which slice it is of."""
    return [
        (piece.place_of(row), piece.id) for piece, rows in taken for row in rows.numbers().tolist()
    ]


def whole(slices):
    return [(piece, piece.rows) for piece in slices]


def every_place(slices):
    return sorted(places_of(whole(slices)))


# --- share --------------------------------------------------------------------------------------


@given(AMOUNTS, st.integers(0, 60), st.integers(0, 10))
def test_shares_use_the_limit_up_and_are_even_among_those_who_have_more(available, limit, turn):
    shares = plan.share(available, limit, turn)

    assert shares.keys() == {name for name in available if available[name]}
    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert all(0 <= shares[name] <= available[name] for name in shares)
    hungry = [shares[name] for name in shares if shares[name] < available[name]]
    assert not hungry or max(shares.values()) <= min(hungry) + 1


@given(st.integers(1, 9), st.integers(1, 30))
def test_over_a_round_of_turns_all_get_the_same(names, limit):
    """The next turn begins where the last one ended, if it counts the taken messages."""
    available = {f"shard {number}": 1_000_000 for number in range(names)}
    got = dict.fromkeys(available, 0)

    for turn in range(0, names * limit, limit):
        for name, share in plan.share(available, limit, turn).items():
            got[name] += share

    assert set(got.values()) == {limit}


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 9)),
    st.integers(1, 30),
    st.integers(0, 99),
    st.integers(1, 40),
)
def test_whose_turn_it_is_has_enough_and_no_more_than_needed(available, limit, turn, of_each):
    even = plan.in_turn(available, limit, turn)
    some = plan.in_turn(available, limit, turn, of_each)

    wealth = {name: count for name, count in available.items() if count}
    assert len(even) == len(set(even)) == min(limit, len(wealth))
    assert len(some) == len(set(some)) <= max(len(even), 1)
    for names in (even, some):
        shares = plan.share({name: wealth[name] for name in names}, limit)
        assert sum(shares.values()) == min(limit, sum(wealth.values()))
    # A name too many would be one that is needed neither for the sum nor for the parts.
    assert sum(wealth[name] for name in some[:-1]) < limit or (len(some) - 1) * of_each < limit
    if all(count >= of_each for count in wealth.values()):
        parts = plan.share({name: wealth[name] for name in some}, limit)
        assert all(part <= of_each for part in parts.values()) or len(some) == len(wealth)


def test_turns_rotate_through_all_names():
    available = dict.fromkeys(range(5), 100)

    assert [plan.in_turn(available, 2, turn) for turn in (0, 2, 4)] == [[0, 1], [2, 3], [4, 0]]


@pytest.mark.parametrize(
    "limits", [[10], [1500], [100, 300], [100, 60], [2, 6], [34, 55], [16, 2, 2]]
)
@pytest.mark.parametrize("names", [2, 3, 5, 8, 16])
def test_each_name_gets_about_as_many_turns_whatever_the_limits(limits, names):
    available = dict.fromkeys(range(names), 10**9)
    turn, turns, waited, longest = 0, Counter(), Counter(), 0

    for number in range(100 * names):
        limit = limits[number % len(limits)]
        first, *_ = plan.in_turn(available, limit, turn, min(limit, 1000))
        turn += limit
        turns[first] += 1
        waited += Counter(range(names))
        longest = max(longest, waited[first])
        waited[first] = 0

    assert set(turns) == set(range(names))
    assert max(turns.values()) < 1.5 * min(turns.values())
    assert longest <= (2 if len(limits) == 1 else 15) * names


# --- in_proportion ------------------------------------------------------------------------------

#: By name, how many messages are available, and a weight.
WEIGHED = st.dictionaries(
    st.integers(0, 9), st.tuples(st.integers(0, 50), st.sampled_from([1, 10, 250, 1000, 4000]))
)
#: The weights of names that have more than anybody wants.
WEIGHTS = st.lists(st.integers(1, 60), min_size=1, max_size=9).map(
    lambda weights: dict(enumerate(weights))
)


@given(WEIGHED, st.integers(0, 200), st.integers(0, 1 << 40))
def test_parts_by_weight_use_the_limit_up_and_are_exact_to_one_message(weighed, limit, turn):
    available = {name: count for name, (count, _) in weighed.items()}
    weights = {name: weight for name, (_, weight) in weighed.items()}

    parts = plan.in_proportion(available, limit, weights, turn)

    assert parts.keys() == {name for name, count in available.items() if count}
    assert sum(parts.values()) == min(limit, sum(available.values()))
    assert all(0 <= parts[name] <= available[name] for name in parts)
    # The parts are whole numbers beside those of one exact level, which has as many messages per
    # weight for everyone: above what a part lacks to it, and below what a hungry one exceeds it by.
    hungry = [name for name in parts if parts[name] < available[name]]
    for name in hungry:
        for other in parts:
            assert (parts[other] - 1) * weights[name] < (parts[name] + 1) * weights[other]


@given(WEIGHTS, st.integers(1, 20), st.integers(0, 1 << 40))
def test_in_successive_turns_the_parts_become_exact_and_nobody_waits_for_long(
    weights, limit, begin
):
    available = dict.fromkeys(weights, 1 << 40)
    total = sum(weights.values())
    got, since = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)

    for turn in range(300):
        for name, part in plan.in_proportion(available, limit, weights, begin + turn).items():
            got[name] += part
            since[name] = 0 if part else since[name] + 1
            assert since[name] * limit * weights[name] <= 4 * total

    assert all(abs(got[name] - 300 * limit * weights[name] / total) < 5 for name in weights)


def test_parts_by_weight_need_no_others():
    assert plan.in_proportion({}, 5, {}, 3) == {}
    assert plan.in_proportion({1: 7, 2: 0}, 5, {1: 1, 2: 1000}, 3) == {1: 5}
    assert plan.in_proportion({1: 100, 2: 100}, 50, {1: 4000, 2: 1000}, 0) == {1: 40, 2: 10}


# --- take ---------------------------------------------------------------------------------------


@given(shards(), st.one_of(st.none(), st.integers(0, 30)), st.integers(0, 25))
def test_the_first_messages_by_place_are_taken_each_slice_once(slices, limit, end):
    taken = plan.take(whole(slices), limit)
    left = plan.before(whole(slices), end)

    assert sorted(places_of(taken)) == every_place(slices)[:limit]
    assert sorted(places_of(left)) == [place for place in every_place(slices) if place[0] < end]
    assert len({piece.id for piece, _ in taken}) == len(taken)
    assert all(rows for _, rows in taken)
    # The verbs tell by identity that nothing is left of a slice.
    some = [*left, *(taken if limit is None else ())]
    assert all(rows is piece.rows for piece, rows in some if len(rows) == len(piece.rows))


@given(shards(), st.integers(0, 30), st.tuples(st.integers(0, 9), st.integers(5, 20)))
def test_the_first_of_some_rows_of_slices_are_taken_by_place(slices, limit, some):
    cut = [(piece, piece.rows.between(*some)) for piece in slices]
    cut = sorted(((piece, rows) for piece, rows in cut if rows), key=plan.first_place)

    assert sorted(places_of(plan.take(cut, limit))) == sorted(places_of(cut))[:limit]


# --- within_bytes -------------------------------------------------------------------------------


@given(st.lists(shards(), min_size=1, max_size=3), st.integers(1, 120), st.integers(1, 20))
def test_what_fits_is_the_first_messages_of_each_shard_within_the_limit_or_one(chosen, limit, most):
    taken = {shard: plan.take(whole(slices), most) for shard, slices in enumerate(chosen)}
    taken = {shard: pieces for shard, pieces in taken.items() if pieces}
    if not taken:
        return

    fitting = plan.within_bytes(taken, limit)

    for shard, pieces in fitting.items():
        places = sorted(places_of(pieces))
        assert places
        assert places == sorted(places_of(taken[shard]))[: len(places)]
    pairs = [pair for pieces in fitting.values() for pair in pieces]
    size = sum(piece.bytes_of(rows) for piece, rows in pairs)
    assert size <= limit or sum(len(rows) for _, rows in pairs) == 1
    assert plan.within_bytes(taken, 10_000) == taken


def test_bytes_are_shared_out_among_the_shards():
    taken = {shard: whole([make_slice(range(100), bytes=1000, shard=shard)]) for shard in range(4)}
    taken[4] = whole([make_slice([0, 1], bytes=20, shard=4)])

    fitting = plan.within_bytes(taken, 420)

    assert [len(rows) for [(_, rows)] in fitting.values()] == [10, 10, 10, 10, 2]


def test_what_was_cut_by_another_order_stays_as_it_is():
    some = whole([make_slice(range(10), bytes=1000)])
    taken = {"ranked": [(piece, rows.between(7, 10)) for piece, rows in some], "plain": some}

    fitting = plan.within_bytes(taken, 500, ["ranked"])

    left = {name: [rows.numbers().tolist() for _, rows in fitting[name]] for name in fitting}
    assert left == {"ranked": [[7, 8, 9]], "plain": [[0, 1]]}


# --- pieces -------------------------------------------------------------------------------------


def sources_of(slices):
    chunks = tuple((first, Chunk(4, first * 10, 40, 0)) for first in range(0, 40, 4))
    return {piece.segment_id: make_segment(piece.segment_id, chunks=chunks) for piece in slices}


def rows_of(piece):
    return sorted(row for part in piece.parts for row in part.rows.numbers().tolist())


@given(
    shards(),
    st.randoms(use_true_random=False),
    st.just((0, 1000)) | st.tuples(st.integers(0, 5), st.integers(5, 20)),
)
def test_pieces_give_each_row_once_in_order_of_places_as_its_slice_says(slices, random, some):
    dated = [
        make_slice(s.rows, position=s.position, segment_id=s.segment_id, attempts=n, fired_at=n + 7)
        for n, s in enumerate(slices)
    ]
    narrowed = [(s, s.rows.between(*some)) for s in dated]
    held = [(s, rows) for s, rows in narrowed if rows]
    random.shuffle(held)
    expected = {
        (s.segment_id, row): (s.place_of(row), s.attempts, s.fired_at)
        for s, rows in held
        for row in rows.numbers().tolist()
    }

    read, places = {}, []
    for piece in plan.scan_tasks(held, sources_of(dated), "orders", None):
        rows, chunks = rows_of(piece), piece.segment.chunks
        covered = {row for first, chunk in chunks for row in range(first, first + chunk.rows)}
        assert set(rows) <= covered
        assert all(min(rows) < at + chunk.rows and at <= max(rows) for at, chunk in chunks)
        assert len(piece) == len(rows)
        places += [expected[piece.segment.segment_id, row][0] for row in rows]
        read |= {
            (piece.segment.segment_id, row): (part.attempts, part.fired_at)
            for part in piece.parts
            for row in part.rows.numbers().tolist()
        }

    assert places == sorted(place for place, _, _ in expected.values())
    assert read == {at: its[1:] for at, its in expected.items()}


def test_pieces_come_shard_by_shard_and_can_be_sent():
    slices = [make_slice([0], shard=1), make_slice([1], shard=0), make_slice([2], shard=1)]

    pieces = list(
        plan.scan_tasks([(s, s.rows) for s in slices], sources_of(slices), "orders", None)
    )

    assert [(piece.queue, piece.shard, rows_of(piece)) for piece in pieces] == [
        ("orders", 0, [1]),
        ("orders", 1, [0]),
        ("orders", 1, [2]),
    ]
    assert pickle.loads(pickle.dumps(pieces)) == pieces


# --- partitions ---------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 100), st.integers(0, 1000)), st.integers(1, 12))
def test_every_shard_is_in_one_partition_and_these_are_about_as_large(sizes, count):
    spread = plan.partitions(sizes, count)

    assert sorted(name for names in spread for name in names) == sorted(sizes)
    assert len(spread) <= count
    assert all(spread)
    loads = [sum(sizes[name] for name in names) for names in spread]
    assert all(load <= sum(sizes.values()) / len(loads) + max(sizes.values()) for load in loads)
    assert plan.partitions(dict(reversed(sizes.items())), count) == spread


def test_slices_of_several_segments_that_interleave_are_read_stretch_by_stretch():
    old = make_slice((0, 1, 3, 4, 6), segment_id=1)
    new = make_slice((0, 3), segment_id=2, position=2)
    fired = make_slice((7,), segment_id=1)
    held = [(s, s.rows) for s in (fired, new, old)]
    read = plan.scan_tasks(held, sources_of([old, new]), "orders", None)
    stretches = [(piece.segment.segment_id, rows_of(piece)) for piece in read]
    assert stretches == [(1, [0, 1]), (2, [0]), (1, [3, 4]), (2, [3]), (1, [6]), (1, [7])]


def test_slices_that_interleave_and_were_written_anew_are_read_in_order_of_places():
    one = make_slice((0, 1, 3), segment_id=9)
    other = make_slice((4,), segment_id=9, position=2)
    held = [(s, s.rows) for s in (other, one)]
    read = plan.scan_tasks(held, sources_of([one]), "orders", None)
    assert [rows_of(piece) for piece in read] == [[0, 1], [4], [3]]
