"""What holds for the store of every test of a verb, when the test is over."""

from collections.abc import Callable, Iterator

import pytest

from ignis_source.options import SourceOptions
from ignis_source.session import Session
from queue_core import Queue, Store
from queue_core.catalog.holders import interests
from queue_core.segments import stager
from queue_core.values.address import Address
from tests.books import audit
from tests.command_line import Ignis, runner
from tests.contract.callers import Seller
from tests.factories import make_queue


@pytest.fixture(autouse=True)
def _books_agree(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every message is in one place, and the counters say the same."""
    store = request.getfixturevalue("store") if "store" in request.fixturenames else None
    yield
    if store is not None and request.node.get_closest_marker("spoiled") is None:
        audit(store)


@pytest.fixture
def queue(store: Store) -> Queue:
    """An empty queue of one shard."""
    return make_queue(store)


@pytest.fixture
def topic(store: Store) -> Queue:
    """An empty queue of one shard with a log."""
    return make_queue(store, log="7 days")


@pytest.fixture
def caller(store: Store) -> Iterator[Seller]:
    """A program with a table and transactions of its own in the database of the catalog."""
    with Seller(store) as made:
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, heartbeats may be late: nobody is thought to be gone soon."""
    monkeypatch.setattr(interests, "GONE_SECONDS", 30.0)


@pytest.fixture
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats are sent more often, so that pools soon see what has changed of their queues."""
    for name in ("BEAT_SECONDS", "QUIET_BEAT_SECONDS"):
        monkeypatch.setattr(interests, name, 0.2)


@pytest.fixture(params=[True, False], ids=["inlined", "in files"])
def inlined(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether loads stay in the catalog; otherwise each becomes a file."""
    is_inlined = bool(request.param)
    monkeypatch.setattr(stager, "INLINE_BYTES", (1 << 20) if is_inlined else 0)
    return is_inlined


@pytest.fixture
def ignis(address: Address) -> Ignis:
    """Run `ignis` on the test's store."""
    return runner(address)


@pytest.fixture
def session(store: Store) -> Iterator[Callable[..., Session]]:
    """Make streaming readers of the queue ``orders``, or of `queues`, each as a process has one."""
    made: list[Session] = []

    def make(*, all_columns: bool = False, **options: str) -> Session:
        given = {"catalog": store.address.catalog, "storage": store.address.storage}
        given |= {"tasks": "none", "idleWait": "0.05"}
        given |= {} if "queues" in options else {"queue": "orders"}
        parsed = SourceOptions.of(given | options)
        # It is the last one.
        made.append(Session(SourceOptions(*parsed[:-1], all_columns)))
        return made[-1]

    yield make
    for each in made:
        each.close()
