"""Settlements are gathered without contradicting themselves."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import BadOutcome
from queue_core.handling.verdicts import Verdicts
from queue_core.values.failure_kinds import REASON_LENGTH
from queue_core.values.ids import IdSet
from queue_core.values.outcomes import OUTCOMES, Settlement
from tests.foreign import foreign


def described(*rows):
    names = ["_message_id", "outcome", "reason"]
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    kinds = [pa.int64(), pa.string(), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=names)


def reasons_of(settlement):
    return [(row["message_id"], row["reason"]) for row in settlement.reasons.to_pylist()]


def kinds_of(settlement):
    return [(row["message_id"], row["kind"]) for row in settlement.reasons.to_pylist()]


@given(st.dictionaries(st.integers(0, 1 << 22), st.sampled_from(OUTCOMES)))
def test_each_message_gets_the_outcome_of_its_row(outcomes):
    settlement = Settlement.of(described(*((id, what, None) for id, what in outcomes.items())))

    for outcome, ids in zip(
        OUTCOMES, (settlement.deleted, settlement.sidelined, settlement.reloaded), strict=True
    ):
        assert set(ids.numbers().tolist()) == {
            id for id, given in outcomes.items() if given == outcome
        }
    assert len(settlement) == len(outcomes)


def test_each_sidelined_message_may_have_a_kind():
    rows = described((1, "sideline", "late"), (2, "sideline", None), (3, "sideline", None))
    kinds = pa.array([None, "timeout", None])

    with_reasons = Settlement.of(rows.append_column("kind", kinds))
    without = Settlement.of(rows.drop_columns(["reason"]).append_column("kind", kinds))

    assert kinds_of(with_reasons) == [(1, "rejected"), (2, "timeout")]
    assert reasons_of(with_reasons) == [(1, "late"), (2, None)]
    assert kinds_of(without) == [(2, "timeout")]


@pytest.mark.parametrize("kind", ["", "Timeout", "two words", "9", "a" * 33, "größe"])
def test_a_kind_is_one_short_word_in_lower_case(kind):
    rows = described((1, "sideline", None)).append_column("kind", pa.array([kind]))

    with pytest.raises(BadOutcome, match=f"kind='{kind}': use one word"):
        Settlement.of(rows)
    with pytest.raises(BadOutcome, match=f"kind='{kind}': use one word"):
        Settlement.sideline(IdSet.of([1]), None, kind)


def test_the_kind_of_what_is_not_sidelined_is_left_out():
    rows = described((1, "delete", None)).append_column("kind", pa.array(["No kind"]))

    assert kinds_of(Settlement.of(rows)) == []


def test_rows_may_come_in_several_forms_and_with_extra_columns():
    table = described((1, "delete", None), (2, "reload", None), (3, "sideline", "declined"))
    forms = [
        table.append_column("x", [["a", "b", "c"]]),
        pa.concat_tables([table.slice(0, 1), table.slice(1)]),
        table.combine_chunks().to_batches()[0],
    ]
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        forms.append(
            table.cast(
                pa.schema([("_message_id", pa.int64()), ("outcome", kind), ("reason", kind)])
            )
        )

    for rows in forms:
        settlement = Settlement.of(rows)
        assert settlement.deleted == IdSet.of([1])
        assert settlement.reloaded == IdSet.of([2])
        assert reasons_of(settlement) == [(3, "declined")]


def test_a_long_reason_is_cut():
    long = "ä" * (REASON_LENGTH + 1)

    by_row = Settlement.of(described((1, "sideline", long)))
    by_call = Settlement.sideline(IdSet.of([1]), long)

    assert reasons_of(by_row) == reasons_of(by_call) == [(1, "ä" * REASON_LENGTH)]


def test_one_reason_may_stand_for_all():
    settlement = Settlement.sideline(IdSet.of([2, 1]), "declined")

    assert reasons_of(settlement) == [(1, "declined"), (2, "declined")]
    assert reasons_of(Settlement.sideline(IdSet.of([2, 1]), None)) == []
    late = Settlement.sideline(IdSet.of([2, 1]), None, "late")
    assert (kinds_of(late), reasons_of(late)) == (
        [(1, "late"), (2, "late")],
        [(1, None), (2, None)],
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (described((1, "deleted", None)), "outcome 'deleted' is unknown; did you mean 'delete'?"),
        (described((1, "delete", None), (2, "x", None)), "outcome 'x' is unknown; use delete, "),
        (described((1, None, None)), "outcome None is unknown"),
        (described((None, "delete", None)), "1 message ids are null"),
        (described((-5, "delete", None)), "-5 is not a message id"),
        (
            described((1, "delete", None), (1, "reload", None)),
            "both deleted and reloaded, such as 1",
        ),
        (described((1, "delete", None), (1, "sideline", "x")), "both deleted and sidelined"),
        (described((1, "reload", None), (1, "sideline", "x")), "both sidelined and reloaded"),
        (
            described().rename_columns(["message_id", "outcome", "reason"]),
            "needs the column '_message_id'; did you mean 'message_id'?",
        ),
        (described().drop_columns(["outcome"]), "needs the column 'outcome'"),
        (
            described((1, "delete", None)).set_column(0, "_message_id", pa.array(["one"])),
            "message ids are whole numbers",
        ),
        (
            described((1, "delete", None)).set_column(1, "outcome", pa.array([7])),
            "outcome '7' is unknown",
        ),
        (
            described((1, "delete", None)).set_column(1, "outcome", pa.array([["delete"]])),
            "the column 'outcome' is list",
        ),
        (
            described((1, "sideline", None)).set_column(2, "reason", pa.array([["x"]])),
            "the column 'reason' is list",
        ),
    ],
)
def test_a_settlement_that_makes_no_sense_is_refused(rows, message):
    with pytest.raises(BadOutcome) as refusal:
        Settlement.of(rows)

    assert message in str(refusal.value)


def test_a_reason_is_kept_as_readable_text():
    rows = described((1, "sideline", None)).set_column(2, "reason", pa.array([404]))
    assert reasons_of(Settlement.of(rows)) == [(1, "404")]
    # Python puts bytes that it cannot read into a text as lone surrogates.
    told = reasons_of(Settlement.sideline(IdSet.of([1]), "no file caf\udce9"))
    assert told == [(1, "no file caf\\udce9")]


def test_settlements_of_tasks_are_merged_into_one():
    merged = Settlement.merge(
        [
            Settlement.of(described((1, "delete", None), (2, "sideline", "a"))),
            Settlement.of(described((3, "delete", None), (4, "sideline", "b"))),
            Settlement.of(described((5, "reload", None))),
        ]
    )

    assert merged.deleted == IdSet.of([1, 3])
    assert merged.sidelined == IdSet.of([2, 4])
    assert merged.reloaded == IdSet.of([5])
    assert reasons_of(merged) == [(2, "a"), (4, "b")]
    assert pickle.loads(pickle.dumps(merged)) == merged
    assert len(Settlement.merge([])) == 0


def test_settlements_that_contradict_each_other_cannot_be_merged():
    with pytest.raises(BadOutcome, match="1 messages are both deleted and reloaded, such as 7"):
        Settlement.merge(
            [
                Settlement.of(described((7, "delete", None))),
                Settlement.of(described((7, "reload", None))),
            ]
        )


def test_texts_that_are_not_utf8_stop_no_settlement():
    texts = foreign([b"a\xff", b"\xc3"])
    columns = {"outcome": ["sideline"] * 2, "reason": texts}
    rows = pa.table({"_message_id": [1, 2], **columns, "trace": texts})

    for each in (rows, rows.to_batches()[0]):
        settlement = Settlement.of(each)
        assert reasons_of(settlement) == [(1, "a?"), (2, "?")]
        assert settlement.traces.column("trace").to_pylist() == ["a?", "?"]
    assert Verdicts.of_batch(pa.table(columns), 2).reasons.to_pylist() == ["a?", "?"]
