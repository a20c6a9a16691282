"""The benchmark of an outage in its short form: an HTTP server is killed, and started again."""

import pytest

from benchmarks.outage import run
from queue_core import Breaker, Store

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("one_tenant", [False, True])
def test_few_messages_fail_and_none_is_lost_while_the_service_is_down(tmp_path, one_tenant):
    breaker = None if one_tenant else Breaker(of=4, pause=0.1, max_pause=0.3)
    workers = 4
    with Store.open(tmp_path / "store") as store:
        found = run(
            store,
            messages=3_000,
            # In which the others go on, even if this process stands still for a while.
            down=3.0 if one_tenant else 1.0,
            warm=0.1,
            batch=1,
            workers=workers,
            one_tenant=one_tenant,
            breaker=breaker,
        )

    assert found.handled + found.sidelined + found.waiting == found.messages
    assert found.repeated == 0
    assert found.late < 30
    if one_tenant:
        assert found.during > 0
    else:
        # The calls until the breaker opens and those in progress then, and one probe in each pause,
        # of which the first two are shorter.
        assert found.failed <= breaker.of + workers + 2 + found.seconds / breaker.max_pause
