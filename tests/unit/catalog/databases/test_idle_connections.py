"""One thread closes idle connections; `tests/processes/test_connections.py` sees which."""

from types import SimpleNamespace

from sqlalchemy import create_engine

from queue_core.catalog.databases import idle_connections


def test_the_garbage_collector_may_return_a_connection_while_they_are_counted(monkeypatch):
    engine, lost = create_engine("sqlite://"), [SimpleNamespace(info={})]
    closer = idle_connections._Closer(engine)

    def count(_):
        if lost:
            closer.returned(None, lost.pop())
        return 1

    monkeypatch.setattr(idle_connections, "_count_open", count)
    closer.returned(None, SimpleNamespace(info={}))
    assert lost == []
