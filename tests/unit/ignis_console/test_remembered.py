"""What pages have shown is kept up to a total size."""

from ignis_console.remembered import Remembered


def test_a_value_is_found_by_its_token():
    kept: Remembered[str] = Remembered(10)
    one, other = kept.keep("one"), kept.keep("other")

    assert (kept.find(one), kept.find(other)) == ("one", "other")
    assert one != other
    assert kept.find(None) is kept.find("guessed") is None


def test_the_oldest_is_forgotten_first_and_what_is_too_large_at_once():
    kept: Remembered[str] = Remembered(10, len)
    tokens = [kept.keep(value) for value in ("aaaa", "bbb", "ccc")]
    assert [kept.find(token) for token in tokens] == ["aaaa", "bbb", "ccc"]

    assert kept.keep("d" * 11) is None
    tokens.append(kept.keep("eeee"))
    assert [kept.find(token) for token in tokens] == [None, "bbb", "ccc", "eeee"]
    tokens.append(kept.keep("f" * 10))
    assert [kept.find(token) for token in tokens] == [None] * 4 + ["f" * 10]
