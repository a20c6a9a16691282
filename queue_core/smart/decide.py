"""What becomes of new messages and of those that are queued, decided from what was seen.

Pure: touches no catalog. De-duplication comes first: what is known already meets nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.catalog.dedup import Known
from queue_core.errors import BadOption
from queue_core.model import QueueInfo
from queue_core.policies import binding
from queue_core.policies.inputs import (
    BoundPolicy,
    Flags,
    Overwritten,
    PolicyInput,
    PolicyResult,
)
from queue_core.policies.numbering import first_of, matched
from queue_core.rows import Numbers
from queue_core.smart.incoming import Incoming
from queue_core.smart.snapshot import Queued

if TYPE_CHECKING:
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPolicy:
    """What a load has to go by: a policy, a de-duplication, or both."""

    evaluation: BoundPolicy | None
    #: The columns of the key by which messages are known again; an empty schema: they are not.
    dedup: pa.Schema
    window: float

    @staticmethod
    def of(queue: QueueInfo, policy: Policy | Check | str | None = None) -> LoadPolicy | None:
        """
        The rule of a queue, with another policy where one is given; None when there is none.

        Raises `BadOption`.
        """
        settings = queue.settings
        if policy is None and settings.policy is None and not settings.dedup:
            return None
        wanted = settings.policy if policy is None else policy
        return LoadPolicy(
            evaluation=binding.bind(wanted, queue.schema, queue.key, settings),
            dedup=binding.dedup_schema(settings.dedup, queue.schema),
            window=settings.dedup_window,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of queued messages, besides the key."""
        return () if self.evaluation is None else self.evaluation.columns


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """The fate of new messages, and of queued ones."""

    #: Which of the new ones are loaded, and those among them that take over values.
    kept: Flags
    overwritten_new: Overwritten
    #: How many of each shard are left out.
    ignored: Mapping[int, int]
    #: On the queued ones.
    verdict: PolicyResult
    #: The keys of new messages, by which they will be known.
    keys: pa.Table


def decide(
    queue: QueueInfo,
    rule: LoadPolicy,
    incoming: Incoming,
    queued: Queued | None,
    known: Known | None,
) -> LoadPlan:
    """Decide; *queued* is what a policy asks, and *known* what a de-duplication knows."""
    admitted, keys = _admitted(rule, incoming, known)
    rows = np.flatnonzero(admitted)
    verdict = PolicyResult(kept=np.ones(len(rows), np.bool_))
    if rule.evaluation is not None and queued is not None and len(rows):
        verdict = _verdict(queue, rule.evaluation, incoming, rows, queued)
    kept = np.zeros(len(incoming), np.bool_)
    kept[rows[verdict.kept]] = True
    left_out = np.bincount(incoming.shards[~kept])
    changed = verdict.overwritten_new
    return LoadPlan(
        kept=kept,
        overwritten_new=replace(changed, rows=rows[changed.rows]),
        ignored={int(shard): int(left_out[shard]) for shard in np.flatnonzero(left_out)},
        verdict=verdict,
        keys=keys,
    )


def _admitted(rule: LoadPolicy, incoming: Incoming, known: Known | None) -> tuple[Flags, pa.Table]:
    """Which messages are not known, and their keys. NULL is no key, and is never known."""
    admitted = np.ones(len(incoming), np.bool_)
    if known is None:
        return admitted, rule.dedup.empty_table()
    keys = incoming.columns(rule.dedup.names)
    has_key = np.zeros(len(incoming), np.bool_)
    for name in rule.dedup.names:
        has_key |= pc.is_valid(keys.column(name)).to_numpy()
    rows = np.flatnonzero(has_key)
    keys = keys.take(pa.array(rows))
    ours, theirs = matched(keys, known.keys, rule.dedup.names)
    count = int(ours.max(initial=-1)) + 1
    seen = np.bincount(theirs[theirs >= 0], minlength=count) > 0
    fresh = (first_of(ours, count)[ours] == np.arange(len(rows))) & ~seen[ours]
    admitted[rows] = fresh
    return admitted, keys.take(pa.array(np.flatnonzero(fresh))).cast(rule.dedup)


def _verdict(
    queue: QueueInfo, evaluation: BoundPolicy, incoming: Incoming, rows: Numbers, queued: Queued
) -> PolicyResult:
    """The policy's; its queued messages by their numbers in *queued*."""
    if queue.key is None:
        raise BadOption(f"queue {queue.name!r}: a policy needs a key")
    names = list(dict.fromkeys([queue.key, *evaluation.columns]))
    new = incoming.columns(names).take(pa.array(rows))
    new_keys, queued_keys = matched(new, queued.columns, [queue.key])
    met = np.flatnonzero(queued_keys >= 0)
    arena = PolicyInput(
        new=new.select(list(evaluation.columns)),
        queued=queued.columns.select(list(evaluation.columns)).take(pa.array(met)),
        new_keys=new_keys,
        queued_keys=queued_keys[met],
        retrieved=queued.retrieved[met],
        new_shards=incoming.shards[rows],
        queued_shards=queued.shard[met],
        behind=queued.behind[met],
    )
    found = evaluation.evaluate(arena)
    changed = replace(found.overwritten, rows=met[found.overwritten.rows])
    return replace(found, deleted=met[found.deleted], asked=met[found.asked], overwritten=changed)
