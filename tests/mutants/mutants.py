"""All mistakes, each as a small change of the text: a test must find each of them.

A condition is left out, two statements are swapped, a lock is not taken, a number is not raised.
"""

from __future__ import annotations

from tests.mutants.choices import OF_CHOICES
from tests.mutants.logs import OF_LOGS
from tests.mutants.mutant import Mutant
from tests.mutants.mutant import of as _of
from tests.mutants.several import OF_SEVERAL
from tests.mutants.transactions import OF_TRANSACTIONS
from tests.mutants.users import OF_USERS

#: Mistakes in segments, side tasks, backups, clocks and limits.
_OTHERS = (
    _of(
        "a finding names no queue",
        "queue_core/catalog/checks/finding",
        "else names.get(found.queue_id),",
        "else None,",
        "fsck",
    ),
    _of(
        "what was repaired is reported as broken",
        "queue_core/catalog/checks/finding",
        "((True, repaired), (False, findings))",
        "((False, repaired), (True, findings))",
        "fsck",
    ),
    _of(
        "progress takes what is expected for done",
        "queue_core/catalog/records/progress",
        "listener(done, expected)",
        "listener(expected, done)",
        "cli_progress",
    ),
    _of(
        "categories of two columns are mixed",
        "queue_core/segments/stager",
        "codes = codes * len(coded.dictionary) + coded",
        "codes = codes + coded",
        "tests/unit/segments/test_stager.py",
    ),
    _of(
        "the rows of a part have the attempts of another",
        "queue_core/segments/pieces",
        "yield part, np.searchsorted(numbers, rows.numbers())",
        "yield parts[0], np.searchsorted(numbers, rows.numbers())",
        "tests/unit/segments/test_reader.py",
    ),
    _of(
        "small objects are read one after the other",
        "queue_core/segments/reader",
        "packed(tasks, sizes, (4 * AT_ONCE, GATHER_MEMORY))",
        "packed(tasks, sizes, (1, GATHER_MEMORY))",
        "tests/contract/test_bucket.py",
    ),
    _of(
        "any number of categories is told apart",
        "queue_core/segments/stager",
        "if len(firsts) > MOST:",
        "if False:",
        "tests/unit/segments/test_stager.py",
    ),
    _of(
        "a queue stages without its categories",
        "queue_core/segments/stager",
        "self._categories = () if as_is else settings.categories",
        "self._categories = ()",
        "eligibility",
    ),
    _of(
        "a deactivated queue has all tasks",
        "queue_core/upkeep/tasks/task",
        "return queue.deactivated_at is None or not self.living_only",
        "return True",
        "tests/unit/upkeep/tasks/test_task.py",
    ),
    _of(
        "a task without an interval is due",
        "queue_core/upkeep/tasks/task",
        "return None if every is None else Timing(every)",
        "return Timing(every or 600.0)",
        "tests/unit/upkeep/tasks/test_task.py",
    ),
    _of(
        "stores of a process share no connections",
        "queue_core/catalog/connections",
        "shared = _pools.get((url, idle))",
        "shared = None",
        "tests/processes/test_connections.py",
    ),
    _of(
        "an altered manifest is read",
        "queue_core/upkeep/backup/manifest",
        "if digest != _digest(content) or content",
        "if content",
        "backup",
    ),
    _of(
        "a backup of a newer ignis is read",
        "queue_core/upkeep/backup/manifest",
        "if isinstance(version, int) and version > VERSION:",
        "if False:",
        "backup",
    ),
    _of(
        "a time that no calendar has breaks a report",
        "queue_core/catalog/checks/finding",
        "if found.since is None or 0 <= found.since < 2**53 else None",
        "",
        "tests/unit/catalog/checks/test_finding.py",
    ),
    _of(
        "a queue stages without its attributes",
        "queue_core/segments/stager",
        "self._attributes = () if as_is else described(settings, queue.schema)",
        "self._attributes = ()",
        "selection",
        "eligibility",
    ),
    _of(
        "a backup of other fields is read",
        "queue_core/upkeep/backup/manifest",
        "or content.keys() != {each.name for each in fields(Manifest)}:",
        "or False:",
        "backup",
    ),
    _of(
        "a shovel brings dead messages back",
        "queue_core/verbs/shovel",
        "rules = movable(queue) if self.force else retriable(queue)",
        "rules = movable(queue)",
        "shovel",
    ),
    _of(
        "a shovel has no rate",
        "queue_core/catalog/transact",
        "                sleep(self._last / self._rate)\n",
        "                pass\n",
        "shovel",
    ),
    _of(
        "a clock that has jumped is believed",
        "queue_core/catalog/identity/clock",
        "    if ahead <= _micros(MARGIN_SECONDS) + int(elapsed * MARGIN_PART):\n",
        "    if True:\n",
        "clock",
    ),
    _of(
        "a clock that jumps within a transaction is believed",
        "queue_core/catalog/identity/clock",
        "    if mine is not None:\n        _check_numbers(mine)",
        "    if False:\n        _check_numbers(mine)",
        "clock",
    ),
    _of(
        "compacted messages are settled by their old ids",
        "queue_core/catalog/slices/id_map",
        "return IdSet.of(_moved(ids.numbers(), met)) if met else ids",
        "return ids",
        "compaction",
    ),
    _of(
        "a copy of a segment that was cut short counts as copied",
        "queue_core/upkeep/backup/folder",
        "file.st_size == size and (",
        "(",
        "backup",
    ),
    _of(
        "an altered table of a backup is read",
        "queue_core/upkeep/backup/folder",
        "if self.digest(file) != expected:",
        "if self.digest(file) is None:",
        "backup",
    ),
    _of(
        "a backup replaces one of another store",
        "queue_core/upkeep/backup/folder",
        "if earlier.store != store:",
        "if False:",
        "backup",
    ),
    _of(
        "a backup keeps the segments that it does not name",
        "queue_core/upkeep/backup/folder",
        "if str(file).lower() not in needed:",
        "if False:",
        "backup",
    ),
    _of(
        "rows of messages that others have got are loaded",
        "queue_core/waiting/settled_load",
        "        if np.isin(rows.ids, lost).any():",
        "        if False:",
        "pool_output",
    ),
    _of(
        "a shared limit counts what one queue has in flight",
        "queue_core/catalog/slices/amounts",
        "    if shared is None:\n",
        "    if True:\n",
        "shared_limits",
    ),
    _of(
        "each queue has a bucket of its own of a shared limit",
        "queue_core/catalog/records/token_buckets",
        "        return cls(queue_id) if limit.name is None else cls(_SHARED, limit.name)\n",
        "        return cls(queue_id)\n",
        "shared_limits",
    ),
    _of(
        "a settlement wakes nobody of a shared limit",
        "queue_core/catalog/slices/changes",
        "shared_limits.sharing(connection, self._shared) if self._shared else ()",
        "()",
        "shared_limits",
    ),
    _of(
        "new values of a shared limit reach one queue",
        "queue_core/catalog/queue_changes",
        "        shared_limits.change(connection, others, settings.limits)\n",
        "",
        "shared_limits",
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *OF_TRANSACTIONS,
    *OF_CHOICES,
    *OF_USERS,
    *_OTHERS,
    *OF_LOGS,
    *OF_SEVERAL,
)
