"""Catalogs of one process share a pool of connections to a server, and none to a file."""

from queue_core.catalog.connections import borrow, give_back

# No engine connects by itself.
SERVER = "postgresql+psycopg://nowhere/store"


class User:
    """Anything that can be referred to weakly."""


def test_a_pool_is_shared_until_its_last_user_gives_it_back():
    one, other, later = User(), User(), User()
    engine = borrow(one, SERVER, 1)
    assert borrow(other, SERVER, 1) is engine

    give_back(one, engine)
    give_back(one, engine)
    assert borrow(one, SERVER, 1) is engine

    give_back(one, engine)
    give_back(other, engine)
    assert borrow(later, SERVER, 1) is not engine


def test_a_user_that_is_gone_keeps_no_pool():
    gone, user, later = User(), User(), User()
    engine = borrow(gone, SERVER, 2)
    borrow(user, SERVER, 2)
    del gone
    give_back(user, engine)
    assert borrow(later, SERVER, 2) is not engine


def test_others_have_other_pools():
    users = [User() for _ in range(3)]
    engines = [
        borrow(users[0], SERVER, 1),
        borrow(users[1], SERVER, 4),
        borrow(users[2], SERVER + "2", 1),
    ]
    assert len(set(map(id, engines))) == 3


def test_each_catalog_in_a_file_has_its_own(tmp_path):
    url = f"sqlite:///{tmp_path}/catalog.db"
    assert borrow(User(), url, 1) is not borrow(User(), url, 1)
