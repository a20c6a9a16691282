"""The benchmark of an outage in its short form: an HTTP server is killed, and started again."""

import pytest

from benchmarks.outage import run
from queue_core import Breaker, Store

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("by", [None, "tenant"])
def test_few_messages_fail_and_none_is_lost_while_the_service_is_down(tmp_path, by):
    breaker = Breaker(of=4, pause=0.1, max_pause=0.3, by=by)
    workers = 4
    with Store.open(tmp_path / "store") as store:
        found = run(
            store,
            messages=3_000,
            # In which the others go on, even if this process stands still for a while.
            down=1.0 if by is None else 3.0,
            warm=0.1,
            batch=1,
            workers=workers,
            one_tenant=by is not None,
            breaker=breaker,
        )

    assert found.handled + found.sidelined + found.waiting == found.messages
    assert found.repeated == 0
    # The calls until the breaker opens and those in progress then, and one probe in each pause, of
    # which the first two are shorter.
    assert found.sidelined <= breaker.of + workers + 2 + found.seconds / breaker.max_pause
    assert found.late < 30
    if by is not None:
        assert found.during > 0
