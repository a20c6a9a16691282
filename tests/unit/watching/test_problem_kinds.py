"""Problems are shown by their kinds, the worst and those of the most messages first."""

from queue_core.watching.problem_kinds import Severity, grouped, problem


def test_problems_of_a_kind_are_a_group_and_the_most_messages_come_first():
    found = [problem("old", f"q{n}", "Old.", n) for n in range(1, 24)]
    found += [problem("damaged", "bad", "Torn.", 1), problem("full", "full", "Full.", 5)]

    damaged, old, full = grouped(found)

    assert (damaged.kind, damaged.severity) == ("damaged", Severity.CRITICAL)
    assert (old.kind, old.count, old.queues, old.messages) == ("old", 23, 23, 276)
    assert [each.queue for each in old.problems[:2]] == ["q23", "q22"]
    assert (full.kind, full.problems[0].action) == ("full", None)
    assert full.advice == full.problems[0].advice
