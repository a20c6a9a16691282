"""Binary values in JSON are base64, however deep they are."""

import pyarrow as pa
import pytest

from ignis_cli.json_bytes import as_texts, decoded, has_bytes, of_text

DEEP = pa.struct([("at", pa.int64()), ("parts", pa.list_(pa.binary(2)))])


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pa.binary(), pa.string()),
        (pa.large_binary(), pa.string()),
        (pa.list_(pa.binary()), pa.list_(pa.string())),
        (DEEP, pa.struct([("at", pa.int64()), ("parts", pa.list_(pa.string()))])),
    ],
)
def test_binary_types_are_read_as_texts(kind, texts):
    assert has_bytes(kind)
    assert as_texts(kind) == texts


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.string()), pa.struct([("a", pa.date32())])]
)
def test_other_types_are_read_as_they_are(kind):
    assert not has_bytes(kind)
    assert as_texts(kind) == kind
    assert decoded("/w==", kind) == "/w=="


def test_values_are_decoded_in_lists_and_structs():
    texts = [{"at": 1, "parts": ["//4=", None]}, {"at": 2, "parts": None}, None]

    assert decoded(texts, pa.list_(DEEP)) == [
        {"at": 1, "parts": [b"\xff\xfe", None]},
        {"at": 2, "parts": None},
        None,
    ]


@pytest.mark.parametrize("text", ["hello", "/w=", "/w==\n", "ä", 7, True])
def test_what_is_not_base64_is_refused(text):
    with pytest.raises(ValueError, match="is not base64, which a binary column needs"):
        of_text(text)
