"""How the values of messages are shown."""

from ignis_console.rendering import shown


def test_long_values_are_cut():
    assert shown("a" * 30, 10) == "a" * 10 + "…"
    assert shown(None) == "null"
    assert shown(b"\x01\x02") == "01 02"
    assert shown({"a": [1]}) == "{'a': [1]}"
