"""Cancel messages in pairs: each closing message deletes one opening message of its key."""

from __future__ import annotations

import numpy as np

from queue_core.policies.decisions import OLDEST
from queue_core.policies.inputs import Flags, PolicyInput, PolicyResult
from queue_core.policies.numbering import ranks
from queue_core.values.rows import Numbers


def cancel(
    inputs: PolicyInput, openings: Numbers, opens: Flags, closes: Flags, order: str
) -> PolicyResult:
    """
    Let new messages close openings of their key, in the given *order*; both are cancelled.

    *openings* are the queued openings, the oldest first. Each new message *opens*, *closes*, or
    does neither. A closing without an opening does nothing.
    """
    queued, new, keys = inputs.queued_keys[openings], inputs.new_keys, inputs.keys
    events = np.flatnonzero(opens | closes)
    events = events[np.argsort(new[events], kind="stable")]
    step = np.where(closes[events], -1, 1)
    key = new[events]
    depth, matched = _depths(key, step, np.bincount(queued, minlength=keys)[key])
    closed = np.zeros(len(new), np.bool_)
    closed[events[matched]] = True
    opened = np.zeros(len(new), np.bool_)
    if order == OLDEST:
        gone = np.bincount(key[matched], minlength=keys)
        all_keys = np.concatenate([queued, new[opens]])
        taken = ranks(all_keys) < gone[all_keys]
        opened[np.flatnonzero(opens)] = taken[len(queued) :]
        return PolicyResult(kept=~(opened | closed), deleted=openings[taken[: len(queued)]])
    # An opening raises the depth to its own level; the next closing at this level closes it.
    standing = (step > 0) | matched
    level = np.concatenate([ranks(queued) + 1, (depth + (step < 0))[standing]])
    of_key = np.concatenate([queued, key[standing]])
    is_close = np.concatenate([np.zeros(len(queued), np.bool_), (step < 0)[standing]])
    by_level = np.lexsort((level, of_key))
    same = (np.diff(of_key[by_level]) == 0) & (np.diff(level[by_level]) == 0)
    taken = np.zeros(len(level), np.bool_)
    taken[by_level[:-1]] = same & is_close[by_level][1:] & ~is_close[by_level][:-1]
    opened[events[standing][taken[len(queued) :]]] = True
    return PolicyResult(kept=~(opened | closed), deleted=openings[taken[: len(queued)]])


def _depths(key: Numbers, step: Numbers, begin: Numbers) -> tuple[Numbers, Flags]:
    """Return how many openings are open after each event, and which events closed one."""
    if not len(key):
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    first = np.diff(key, prepend=-1) != 0
    total = np.cumsum(step)
    offset = np.where(first, total - step, 0)
    offset = offset[np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))]
    free = begin + total - offset
    # The minimum of each key so far: each key is shifted below all earlier ones.
    group = np.cumsum(first)
    far = int(free.max() - free.min()) + 1
    least = np.minimum(np.minimum.accumulate(free - group * far) + group * far, 0)
    before = np.where(first, 0, np.concatenate([[0], least[:-1]]))
    matched = (step < 0) & (least == before)
    return free - least, matched
