"""What failures have in common that differ in values."""

import pyarrow as pa
import pytest

from queue_core.values.fingerprints import LENGTH, fingerprints


def of(reason, kind="exception"):
    return fingerprints(pa.array([kind]), pa.array([reason], pa.string()))[0].as_py()


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("ValueError: mailbox of c2161 does not exist", "ValueError: mailbox of * does not exist"),
        ("KeyError: 'it\\'s'", "KeyError: *"),
        ("can't open John's file 'of John's' now", "can't open John's file * now"),
        ('no “x”, «y», `z` or "w" here', "no * or * here"),
        ("cannot reach 10.0.0.1:5432 from fe80::ab:1", "cannot reach * from *"),
        ("[fe80::aaf%eth0]:80 and fe80::aaf:1%en-0.1", "[*]:* and *"),
        ("fe80::bad from 2001:db8:5::", "* from *::"),
        ("std::get of a::b at 5:add", "std::get of a::b at *:add"),
        ("no id aB+cD/x9Q== or aB+c9D in a/b/c9", "no id * or * in a/b/*"),
        ("Order5(name='ann', of == 'x')", "*(name=*, of == *)"),
        ("near 'SELECT a", "near *"),
        ('near "SELECT a', "near *"),
        ("the users' 'a' and {}'s or <Order>'s state", "the users' * and {}'s or <Order>'s state"),
        (r"cannot open C:\data\f5.csv", r"cannot open C:\data\*.csv"),
        ("<Order object at 0x7f3a>", "<Order object at *>"),
        ("user ann.b+x@mail.example.org", "user *"),
        ("of 3f2b8a00-aaaa-bbbb-cccc-deadbeefcafe", "of *"),
        ("commit deadbeef gives no feedback", "commit * gives no feedback"),
        ("https://a.b/v1/customers/77?x=ann&y=b said 503", "https://a.b/*/customers/* said *"),
        ("ids [1, 2, 3] of {'a': 1.5e-10}", "ids [*] of {*: *}"),
        ("at 2026-11-27T10:00:00.123+00:00", "at *"),
        ("kündä12 fehlt", "* fehlt"),
        ("/data/in/2026/11/file-0001.csv", "/data/in/*.csv"),
        ("ValueError: no row\n  in line 5", "ValueError: no row"),
        ("S3Error: 5", "S3Error: *"),
        ("Http404", "Http404"),
        (None, None),
        ("", ""),
    ],
)
def test_values_are_left_out(reason, shown):
    assert of(reason) == shown
    assert of(shown) == shown


def test_only_exceptions_have_a_class():
    assert of("c5: no mailbox", "rejected") == "*: no mailbox"
    assert of("c5: no mailbox", None) == "*: no mailbox"


def test_failures_with_ids_in_their_texts_are_alike():
    texts = pa.chunked_array(
        [[f"E: {number:08x} of user-{number} at 'x{number}'"] for number in range(3000)]
    )
    kinds = pa.chunked_array([pa.repeat("exception", 3000)])

    assert fingerprints(kinds, texts).unique().to_pylist() == ["E: * of * at *"]


def test_long_ones_are_cut_after_their_values_are_left_out():
    assert of("'" + "x" * LENGTH + "' " + "y" * 500) == ("* " + "y" * 500)[:LENGTH]
