"""Pauses of a history."""

from tests.soak.pauses import Pause, pauses


def test_a_pause_is_the_longer_one_of_loads_and_settlements():
    moments = {"loaded": [1, 2, 3, 9, 10, 11], "settled": [1.5, 2.5, 5, 12.5, 13]}
    history = [{"what": what, "at": at} for what, times in moments.items() for at in times]
    history += [
        {"what": "fault", "fault": 1, "name": "cut", "at": 2.2},
        {"what": "healed", "fault": 1, "at": 8.0},
        # Nothing is loaded after it any more.
        {"what": "fault", "fault": 2, "name": "kill", "at": 11.5},
        {"what": "healed", "fault": 2, "at": 11.6},
    ]

    assert pauses(history) == {"cut": Pause((7.5, 7.5), (4.5, 4.5))}


def test_faults_of_one_kind_are_summed_up():
    history = [{"what": what, "at": at / 10} for what in ("loaded", "settled") for at in range(200)]
    for number, (begin, end) in enumerate([(3, 4), (8, 9.05), (12, 13)]):
        history.append({"what": "fault", "fault": number, "name": "slow", "at": begin})
        history.append({"what": "healed", "fault": number, "at": end})

    (slow,) = pauses(history).values()
    assert slow.stood_still == (0.1, 0.1)
    assert slow.went_on == (0.1, 0.1)
