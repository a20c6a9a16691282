"""Checks that tests name by their import paths, as users name theirs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from queue_core import Decision, Latest, Predicate, per_message, vectorised

#: Not a policy.
NUMBER = 5
#: A policy value.
LATEST = Latest()


def round_number(batch: pa.RecordBatch) -> pa.BooleanArray:
    """Select messages whose number ends with a zero."""
    return pc.ends_with(pc.cast(batch["number"], pa.string()), "0")


ROUND = Predicate(round_number, ["number"])


def add_up(new, queued):
    """Let a waiting message of the same customer take over the amount."""
    if new["customer"] != queued["customer"] or queued["_retrieved"]:
        return Decision.DONT_CARE
    return Decision.IGNORE, {"amount": queued["amount"] + new["amount"]}


def _add_up(new: pa.Table, queued: pa.Table) -> pa.Table:
    alike = pc.and_(
        pc.equal(new["customer"], queued["customer"]), pc.invert(queued["_retrieved"])
    ).combine_chunks()
    amount = pc.add(new["amount"], queued["amount"]).combine_chunks()
    values = pa.StructArray.from_arrays([amount], names=["amount"], mask=pc.invert(alike))
    return pa.table({"decision": pc.if_else(alike, "ignore", "don't care"), "values": values})


ADD_UP = vectorised(_add_up)


def _by_words(new, queued):
    if queued["_retrieved"]:
        return None
    return "overrides" if new["customer"] == queued["customer"] else None


#: Answers of its own.
BY_WORDS = per_message(
    _by_words, indicators={"overrides": Decision.QUEUE_AND_DELETE, None: Decision.DONT_CARE}
)


class Checks:
    """A check within a class."""

    @staticmethod
    def refuse(new, queued):
        return Decision.IGNORE
