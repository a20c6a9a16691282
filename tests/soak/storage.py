"""Faults of the storage: a bucket that answers badly, a disk without room."""

from __future__ import annotations

import random
import resource
from dataclasses import dataclass

from tests.soak.cast import Cast
from tests.soak.nemesis import Fault
from tests.soak.proxy import Proxy

#: What a proxy does, by the name of the fault.
_MODES = {
    "bucket refuses": "refuse",
    "bucket slow": "slow",
    "bucket cuts bodies": "cut",
    "bucket says 404": "missing",
    "bucket busy": "busy",
}


@dataclass(eq=False)
class BadBucket(Fault):
    """The object store answers some or all requests badly."""

    weight, seconds, shared = 1.5, (0.3, 3.0), True

    name: str
    proxy: Proxy
    chance: random.Random

    def begin(self) -> str | None:
        self.proxy.share = self.chance.choice((0.1, 0.5, 1.0))
        self.proxy.mode = _MODES[self.name]
        return None

    def heal(self) -> None:
        # Another one may have begun meanwhile.
        if self.proxy.mode == _MODES[self.name]:
            self.proxy.mode = "pass"


def bad_buckets(proxy: Proxy, chance: random.Random) -> list[Fault]:
    return [BadBucket(name, proxy, chance) for name in _MODES]


@dataclass(eq=False)
class NoRoom(Fault):
    """
    A process can write no file beyond a few bytes, as on a disk that is full.

    The limit is one of the process, so it needs no root; what is written behind it fails in the
    middle, in the catalog as in segments. Histories are below it.
    """

    name, weight, seconds = "disk full", 3.0, (0.5, 4.0)

    cast: Cast
    chance: random.Random
    _pid: int = 0

    def begin(self) -> str | None:
        part = self.cast.pick()
        if part is None:
            return None
        self._pid = part.child.pid
        self._limit(self.chance.choice((30_000, 60_000, 200_000)))
        return part.life

    def heal(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        try:
            _, hard = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (size, hard))
        except ProcessLookupError:
            return
