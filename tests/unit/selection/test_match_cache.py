"""The match cache: matches add up, and the least recently used are evicted."""

from pyroaring import BitMap

from queue_core.selection.match_cache import MatchCache


def test_matches_add_up_and_the_least_recently_used_are_evicted():
    cache = MatchCache(most=10)
    cache.add("one", BitMap(range(4)), BitMap([1]))
    cache.add("two", BitMap(range(4)), BitMap())
    grown = cache.add("one", BitMap([7]), BitMap([7]))
    assert (set(grown.seen), set(grown.met)) == ({0, 1, 2, 3, 7}, {1, 7})
    cache.add("three", BitMap(range(5)), BitMap())
    assert not cache.of("two").seen
    assert cache.of("one") == grown
