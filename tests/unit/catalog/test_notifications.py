"""What a transaction notifies others of."""

from queue_core import Store
from queue_core.catalog import notifications
from queue_core.catalog.dialect import of


def test_an_interrupted_transaction_may_end_late_within_another_one(tmp_path):
    with Store.open(tmp_path) as store, store.catalog.engine.connect() as connection:
        database = of(connection)
        interrupted = notifications.Outbox(connection)
        connection.rollback()

        outbox = notifications.Outbox(connection)
        # As the traceback of the interrupt is forgotten.
        interrupted.close()
        notifications.notify(connection, 1)
        notifications.send_within(connection, database)
        outbox.close()
        outbox.commit(connection, database)
