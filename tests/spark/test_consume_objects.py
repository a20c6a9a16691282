"""`consume` with a class of messages: handlers get objects on the executors."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import pytest

from queue_core import SchemaMismatch, Store

pytestmark = pytest.mark.nightly


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Part:
    name: str
    size: Size


@dataclass
class Device:
    number: int
    price: Decimal
    parts: list[Part]
    owner: str | None = None


@dataclass
class Other:
    colour: str


def test_a_handler_gets_objects(start, tmp_path, monkeypatch):
    queue = Store.open(tmp_path / "store").create_queue("devices", Device, shards=1)
    for kind in (Size, Part, Device):
        # Classes of a script, which the executors cannot import.
        monkeypatch.setattr(kind, "__module__", "__main__")
    wheel, door = Part("wheel", Size.SMALL), Part("door", Size.LARGE)
    queue.load([Device(1, Decimal("9.90"), [wheel]), Device(2, Decimal(5), [door], "Ada")])

    def handle(device: Device) -> bool:
        assert isinstance(device.parts[0].size, Size)
        return device.price < 9 and device.owner == "Ada"

    with pytest.raises(SchemaMismatch, match="queue 'devices' does not fit class Other"):
        start(handle, queue="devices", message_type=Other)

    start(handle, queue="devices", message_type=Device)
    assert queue.browse().num_rows == 0
    (left,) = queue.objects(queue.browse(magazine="sideline"))
    assert left == Device(1, Decimal("9.90"), [wheel])
    assert queue.failures().column("kind").to_pylist() == ["rejected"]
