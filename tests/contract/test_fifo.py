"""The FIFO queue's examples: bursts of commands, a pipeline of tiles, a document in packets."""

import random
import time

import numpy as np
import pyarrow as pa

from tests.factories import make_queue
from tests.waiting import PATIENCE, Caller, all_at_once

COMMANDS = pa.schema([("command", pa.string()), ("x", pa.int32()), ("y", pa.int32())])
EVENTS = pa.schema([("device", pa.string()), ("key", pa.string())])
SIDE = 32
TILE = pa.schema([("tile", pa.int32()), ("pixels", pa.list_(pa.float32()))])
PACKETS = pa.schema([("document", pa.string()), ("number", pa.int32()), ("bytes", pa.binary())])


def test_drawing_commands_come_in_bursts_and_are_drawn_at_a_steady_rate(store):
    """The application is never further ahead of the display than the queue is long."""
    screen = make_queue(store, "screen", COMMANDS, max_size=8)
    drawn, ahead = [], []

    def application():
        for burst in range(6):
            for x in range(4):
                screen.load([{"command": "line", "x": x, "y": burst}])

    def display():
        while len(drawn) < 24:
            ahead.append(screen.browse().num_rows)
            firing = screen.fire(1, timeout=PATIENCE)
            drawn.extend(firing.messages.select(["x", "y"]).to_pylist())
            screen.delete(firing)

    all_at_once(application, display)

    assert drawn == [{"x": x, "y": y} for y in range(6) for x in range(4)]
    assert max(ahead) <= 8


def test_user_input_is_handled_in_the_order_of_its_coming(store):
    """Devices do not wait: only the last few keys are of use."""
    keys = make_queue(store, "keys", EVENTS, max_size=5, overflow="ring")
    for key in "hello, world":
        keys.load([{"device": "keyboard", "key": key}])
    assert "".join(keys.fire("all").messages.column("key").to_pylist()) == "world"


def test_tiles_of_an_image_go_through_a_pipeline(store):
    """Two stages side by side; each writes into a buffer of the next queue."""
    raw = make_queue(store, "raw", TILE, max_size=4)
    transformed = make_queue(store, "transformed", TILE, max_size=4)
    image = np.arange(12 * SIDE * SIDE, dtype=np.float32).reshape(12, SIDE * SIDE)
    coded = {}

    def load(queue, tile, pixels):
        with queue.request(1, widths={"pixels": SIDE * SIDE}) as buffer:
            buffer["tile"][:] = tile
            buffer["pixels"][:] = pixels
        queue.load(buffer)

    def camera():
        for tile, pixels in enumerate(image):
            load(raw, tile, pixels)

    def transform():
        for _ in image:
            firing = raw.fire(1, timeout=PATIENCE)
            (message,) = firing.messages.to_pylist()
            load(transformed, message["tile"], np.cumsum(message["pixels"], dtype=np.float64) % 7)
            raw.delete(firing)

    def encode():
        for _ in image:
            firing = transformed.fire(1, timeout=PATIENCE)
            (message,) = firing.messages.to_pylist()
            coded[message["tile"]] = np.asarray(message["pixels"], np.float32).tobytes()
            transformed.delete(firing)

    all_at_once(camera, transform, encode)

    assert list(coded) == list(range(12))
    for tile, pixels in enumerate(image):
        expected = (np.cumsum(pixels, dtype=np.float64) % 7).astype(np.float32)
        assert coded[tile] == expected.tobytes()


def test_packets_of_a_document_are_put_together_in_order(store):
    """The network delays each packet as it likes; the gate's queue keeps them in order."""
    gate = make_queue(store, "gate", PACKETS, key="document", shards=2, max_size=6)
    text = ("The order in which they are sent is the order in which they arrive. " * 8).encode()
    packets = [text[start : start + 48] for start in range(0, len(text), 48)]
    jitter = random.Random(4)

    def send():
        for number, packet in enumerate(packets):
            time.sleep(jitter.uniform(0, 0.01))
            gate.load([{"document": "report", "number": number, "bytes": packet}])

    def receive():
        received = []
        while len(received) < len(packets):
            firing = gate.fire(3, timeout=PATIENCE)
            received += firing.messages.column("bytes").to_pylist()
            gate.delete(firing)
            time.sleep(jitter.uniform(0, 0.02))
        return b"".join(received)

    sender, receiver = Caller(send), Caller(receive)

    assert receiver.done() == text
    sender.done()


def test_what_a_producer_changes_after_a_load_changes_no_message(store):
    """A load copies the rows, so their memory can be used again."""
    tiles = make_queue(store, "tiles", TILE)
    pixels = np.zeros(SIDE * SIDE, np.float32)
    flat = pa.array(pixels)
    assert flat.buffers()[1].address == pixels.ctypes.data, "Arrow has copied them already"
    column = pa.ListArray.from_arrays(pa.array([0, SIDE * SIDE], pa.int32()), flat)
    rows = [{"tile": 1, "pixels": [1.0]}]
    tiles.load(pa.table([pa.array([0], pa.int32()), column], schema=TILE))
    tiles.load(rows)

    pixels[:] = 9
    rows[0]["tile"] = 9
    rows[0]["pixels"].append(9)

    first, second = tiles.fire("all").messages.to_pylist()
    assert first["pixels"] == [0.0] * (SIDE * SIDE)
    assert (second["tile"], second["pixels"]) == (1, [1.0])
