"""The glossary defines the names that the code shows to its users, each once."""

import re
from collections import Counter

from queue_core.catalog import tables
from queue_core.values.model import Magazine, State
from queue_core.values.outcomes import OUTCOMES
from queue_core.values.views import SHARDS, VIEWS
from tests.tree import ROOT

#: The words of each row of a table, and their meaning.
ROWS = re.findall(
    r"^\| (\*\*.+?\*\*) \| (.+) \|$", ROOT.joinpath("docs/words.md").read_text(), re.MULTILINE
)
DEFINITIONS = [
    (word, meaning) for words, meaning in ROWS for word in re.findall(r"\*\*(.+?)\*\*", words)
]
DEFINED = {word for word, _ in DEFINITIONS}

#: What a shard has of a log, which counts nothing that happens to messages.
OF_LOGS = {"log", "logged", "logged_bytes", "log_of", "cursor", "cursor_end"}
#: What leads to the newest version of a row, and to the first message that waits.
OF_VERSIONS = {"version", "head", "head_released", "released"}
COUNTERS = [
    column.name
    for table in (tables.shards, tables.shard_locks, tables.counters)
    for column in table.c
    if not column.primary_key and column.name not in {"seal", *OF_LOGS, *OF_VERSIONS}
]


def names_of_the_code():
    yield from (("magazine", magazine.name.lower()) for magazine in Magazine)
    yield from (("state", state.name.lower()) for state in State)
    yield from (("outcome", outcome) for outcome in OUTCOMES)
    yield from (("view", view) for view in VIEWS)
    yield from (("counter", counter.replace("_", " ")) for counter in COUNTERS)
    yield from (("count", name) for name in ("waiting", "in_flight"))


def test_each_name_of_the_code_is_defined():
    assert [(kind, name) for kind, name in names_of_the_code() if name not in DEFINED] == []


def test_the_counters_are_those_of_the_view():
    told = set(SHARDS.names) - {"queue", "magazine", "shard", "waiting", "in_flight"}

    assert set(COUNTERS) == told


def test_no_word_is_defined_twice_or_without_a_meaning():
    twice = [word for word, count in Counter(word for word, _ in DEFINITIONS).items() if count > 1]

    assert twice == []
    assert [word for word, meaning in DEFINITIONS if len(meaning) < 10] == []


def test_the_glossary_is_short_enough_to_read():
    assert len(ROWS) <= 80, "define internal words in the module that uses them"
