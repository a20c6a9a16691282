"""Fingerprints of failures: what is common to reasons that differ only in values."""

from __future__ import annotations

import pyarrow as pa

from queue_core.values.failure_kinds import EXCEPTION

#: The most characters of a fingerprint, and of the first line of a reason.
LENGTH = 300
#: What stands for a value.
_VALUE = "*"
#: The class of an exception, such as ``S3Error:``, whose digits stay.
_PARTS = r"^(?P<head>[A-Za-z_]\w*(?:: |$))?(?P<rest>.*)$"
#: Characters of words, without those of punctuation. Unicode's own classes take long to compile.
_WORD = r"\w\x{C0}-\x{1FFF}\x{2C00}-\x{2DFF}\x{3040}-\x{10FFFF}-"
#: The interface at the end of a link-local address.
_SCOPE = r"(?:%[\w.-]+)?"
_VARIABLE = "|".join(
    (
        # Quoted values. An apostrophe within a word, as in "John's", is not a quote.
        r'"(?:[^"\\]|\\.)*"',
        r"\B'(?:[^'\\]|\\.|\b'\b)*'\B",
        r"`[^`]*`",
        "“[^”]*”",
        "«[^»]*»",
        # A quote that is not closed, since the text was cut.
        r"\B[\"']\w{2}[^\"']*$",
        # E-mail addresses.
        r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
        # UUIDs, addresses of IPv6 and of network cards, and times.
        r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
        r"\b[0-9a-fA-F]{0,3}\d[0-9a-fA-F]{0,3}:(?::[0-9a-fA-F]{1,4})+\b" + _SCOPE,
        r"\b[0-9a-fA-F]{0,4}(?::{1,2}[0-9a-fA-F]{1,4}){2,7}\b" + _SCOPE,
        # The query of a URL.
        r"\?[\w%.~-]+=[^\s\"'>)]*",
        # Hexadecimal numbers without a digit, and then each word with a digit: numbers, ids, dates,
        # addresses of IPv4 and of objects, and such parts of paths.
        r"\b[0-9a-fA-F]{7,}\b",
        # Base64 has a plus, and a slash too if it has its end.
        r"[\w+/]*\d[\w+/]*={1,2}\B",
        rf"[{_WORD}+]*\d[{_WORD}+]*",
        # No catalog can store this character in a text.
        r"\x00",
    )
)
#: Neighbouring values, which become one: a list has any number of them.
_NEIGHBOURS = r"\*(?:(?:, ?|[*.:/+_ -])\*|\*)+"


def fingerprints(kinds: pa.ChunkedArray, reasons: pa.ChunkedArray) -> pa.Array:
    """
    Return the fingerprint of each failure: the first line of its reason, with ``*`` for values.

    Values are numbers, words with a digit, quoted texts, hexadecimal numbers, e-mail addresses, and
    network addresses. The class of an exception stays as it is. Null: there is no reason.
    """
    # Not at the top: commands such as `ignis queues` wait for imports, and need none.
    import pyarrow.compute as pc

    known = pc.unique(reasons)
    parts = pc.extract_regex(first_lines(known), _PARTS)
    head, rest = (pc.struct_field(parts, name) for name in ("head", "rest"))
    # In one call, which compiles the patterns.
    without = _without_values(pa.concat_arrays([head, rest]))
    others, rest = without.slice(0, len(head)), without.slice(len(head))
    place = pc.index_in(reasons, value_set=known)
    classes = pc.fill_null(pc.equal(kinds, EXCEPTION), False)
    heads = pc.if_else(classes, head.take(place), others.take(place))
    whole = pc.binary_join_element_wise(heads, rest.take(place), "")
    found = pc.utf8_slice_codeunits(whole, 0, LENGTH)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def first_lines(texts: pa.Array) -> pa.Array:
    """Return the first line of each text."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(texts, r"(?s)\r?\n.*", "")


def _without_values(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    shown = pc.replace_substring_regex(texts, _VARIABLE, _VALUE)
    return pc.replace_substring_regex(shown, _NEIGHBOURS, _VALUE)
