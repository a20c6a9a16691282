"""Shipping: what Spark sends checks where it arrives."""

import importlib
import sys
import tomllib

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import queue_core
from pyspark_ignis.shipping import OLDEST_PYARROW, check_arrivals, checked
from tests.tree import ROOT

VERSION = queue_core.__version__


class Sent:
    """Has a state."""

    def __init__(self, content):
        self.content = content


class Brief(Sent):
    """Leaves a part of its state behind."""

    def __getstate__(self):
        return {"content": None}


@pytest.mark.parametrize("content", [1, [lambda: 2], None])
def test_an_object_arrives_with_its_state(content):
    arrived = cloudpickle.loads(cloudpickle.dumps(checked(Sent(content))))

    assert isinstance(arrived, Sent)
    assert type(arrived.content) is type(content)


def test_an_object_says_what_it_sends():
    assert cloudpickle.loads(cloudpickle.dumps(checked(Brief(1)))).content is None


def test_what_another_object_holds_is_checked(monkeypatch):
    check_arrivals(Sent)
    pickled = cloudpickle.dumps({"reader": Sent(1)})
    monkeypatch.setattr(queue_core, "__version__", "0.0.9")

    with pytest.raises(ImportError, match=r"has ignis 0\.0\.9, and the driver"):
        cloudpickle.loads(pickled)


def test_a_version_before_the_check_is_refused(monkeypatch):
    pickled = cloudpickle.dumps(checked(Sent(1)))
    monkeypatch.delattr(queue_core, "__version__")

    with pytest.raises(ImportError, match=f"pip install ignis-queue=={VERSION} there"):
        cloudpickle.loads(pickled)


def test_an_old_pyarrow_is_refused(monkeypatch):
    pickled = cloudpickle.dumps(checked(Sent(1)))
    monkeypatch.setattr(pa, "__version__", "15.0.2")

    with pytest.raises(ImportError, match=r"has pyarrow 15\.0\.2: pip install 'pyarrow>=21' there"):
        cloudpickle.loads(pickled)


def test_a_module_of_a_handler_that_is_missing_is_named(monkeypatch, tmp_path):
    (tmp_path / "shop_handlers.py").write_text("def charge(message): return True")
    monkeypatch.syspath_prepend(tmp_path)
    charge = importlib.import_module("shop_handlers").charge
    pickled = cloudpickle.dumps(checked(Sent(charge)))
    monkeypatch.delitem(sys.modules, "shop_handlers")
    (tmp_path / "shop_handlers.py").unlink()
    importlib.invalidate_caches()

    with pytest.raises(ImportError, match="has no module shop_handlers: send it there with"):
        cloudpickle.loads(pickled)


def test_the_oldest_pyarrow_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert f"pyarrow>={OLDEST_PYARROW}" in project["dependencies"]
