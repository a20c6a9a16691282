"""The manifest of a backup: it comes back as it was written, or not at all."""

import json

import pytest

from queue_core.errors import DamagedBackup, FormatTooNew
from queue_core.upkeep.backup.manifest import File, Manifest

MANIFEST = Manifest(
    store="0f",
    format=2,
    taken_at=1,
    folder="catalog-1",
    tables={"slices": File(3, "ab")},
    last_ids={"slices": 7},
    segments=File(1, "cd"),
)


@pytest.mark.parametrize("segments", [None, File(1, "cd")])
def test_it_comes_back_as_it_was_written(segments):
    manifest = Manifest(**{name: getattr(MANIFEST, name) for name in Manifest.__slots__})
    object.__setattr__(manifest, "segments", segments)

    assert Manifest.from_json(manifest.to_json(), "x") == manifest


def test_each_altered_character_is_noticed():
    text = MANIFEST.to_json()

    for at in range(len(text)):
        altered = text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
        try:
            assert Manifest.from_json(altered, "x") == MANIFEST, at
        except (DamagedBackup, FormatTooNew):
            continue
        # A blank between two entries means nothing.
        assert text[at].isspace(), at


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"version": "1", "sha256": ""}'])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(DamagedBackup, match="manifest is altered"):
        Manifest.from_json(text, "manifest")


def test_a_newer_one_is_refused_whatever_is_in_it():
    newer = json.dumps({"version": 2, "sha256": "", "else": 1})

    with pytest.raises(FormatTooNew, match="upgrade ignis"):
        Manifest.from_json(newer, "manifest")
