"""The leader by ZooKeeper, in IgnisMQ's layout of nodes.

```
/{client}-ignis-workers/{client}/
├── loadbalancer-leader/      the election: an ephemeral node per candidate; the first one leads
├── members/{instance}        ephemeral: the instances
└── communicator/{instance}   the leader's assignment: {"balancerId": …, "partitions": […]}
```

The leader assigns the partitions, which are the names of queues, to the members in turn. It repeats
this whenever a member comes or goes, and every 30 seconds. An instance is active when it is first
in the election and its communicator node names it as the balancer. An instance that loses its
connection is inactive from that moment; if its session survives, it is active again, once others
have had the time for a heartbeat. The same holds after a suspension.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Sequence

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from sqlalchemy import Connection

from queue_core.catalog.identity.clock import stopwatch
from queue_core.errors import BadOption, NotLeading
from queue_core.support.loop import Loop
from queue_core.values.names import of_process
from queue_core.values.options import CLIENT_ID

#: Seconds between two reads of the members. Source: IgnisMQ.
REFRESH_SECONDS = 30.0
#: Seconds without contact after which ZooKeeper ends an instance's session.
SESSION_SECONDS = 10.0
#: Seconds after which a failed read is repeated.
RETRY_SECONDS = 1.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}")
_HOSTS = re.compile(r"[^\s,:/]+:\d{1,5}(,[^\s,:/]+:\d{1,5})*(/[^\s,]*)?")
#: Length of the suffix of a node in an election: '-' and ZooKeeper's ten digits.
_SUFFIX = 11

_log = logging.getLogger(__name__)


class ZooKeeperLeader:
    """A candidate at the ZooKeeper of *hosts*, among those with the same *client_id*."""

    def __init__(
        self,
        hosts: str,
        *,
        client_id: str = CLIENT_ID,
        instance: str | None = None,
        partitions: Callable[[], Sequence[str]] = tuple,
        every: float = REFRESH_SECONDS,
        session: float = SESSION_SECONDS,
    ) -> None:
        if not _HOSTS.fullmatch(hosts):
            raise BadOption(f"zookeeper={hosts!r}: use host:port, or several separated by commas")
        self.instance = instance or of_process()
        for option, name in (("clientId", client_id), ("instance", self.instance)):
            if not _NAME.fullmatch(name):
                raise BadOption(f"{option}={name!r}: use letters, digits or any of '_.:@-'")
        self._hosts = hosts
        self._root = f"/{client_id}-ignis-workers/{client_id}"
        self._partitions = partitions
        self._every = every
        self._session = session
        self._lock = threading.Lock()
        #: From when, and until when, by the stopwatch, this instance leads.
        self._from = self._until = 0
        #: Grows when the connection is lost, which invalidates earlier reads.
        self._losses = 0
        self._client: KazooClient | None = None
        self._loop = Loop("ZooKeeper", self._read, every=every)

    def start(self) -> None:
        """Connect as soon as ZooKeeper can be reached, and stand for election."""
        if self._client is not None:
            return
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=RETRY_SECONDS)
        client = KazooClient(self._hosts, timeout=self._session, connection_retry=retry)
        self._client, self._loop = client, Loop("ZooKeeper", self._read, every=self._every)
        client.add_listener(self._connection_changed)
        try:
            self._loop.start()
            client.start_async()
        except RuntimeError:
            # There is no thread for it.
            self._loop.end()
            client.handler.stop()
            self._client = None
            raise

    def stop(self) -> None:
        """End the session; another instance can take over at once."""
        if self._client is None:
            return
        self._loop.end()
        self._client.stop()
        self._loop.stop()
        self._client.close()
        self._client = None
        self._until = 0

    def leads(self) -> bool:
        """Return whether this instance is active."""
        return self._from <= stopwatch() < self._until

    def guard(self, connection: Connection) -> None:
        """Raise `NotLeading` unless this instance is active; the catalog is not asked."""
        if not self.leads():
            raise NotLeading(f"{self.instance} is not the leader: another instance is, or none")

    def grant(self) -> None:
        """Return None: the catalog has no lease."""

    def _connection_changed(self, state: str) -> None:
        """Note a change of the connection. The client waits for this call, so it must not read."""
        if state != KazooState.CONNECTED:
            with self._lock:
                self._losses += 1
                self._until = 0
        self._loop.wake()

    def _changed(self, _: object) -> None:
        """Note that a watched node has changed."""
        self._loop.wake()

    def _read(self) -> float | None:
        client = self._client
        if client is None or not client.connected:
            return None
        try:
            self._refresh(client)
        except (KazooException, KazooTimeoutError) as error:
            _log.warning("ZooKeeper at %s: %r; trying again", self._hosts, error)
            return RETRY_SECONDS
        return None

    def _refresh(self, client: KazooClient) -> None:
        """Assign the partitions if this instance is first, and read its own assignment."""
        losses, begun = self._losses, stopwatch()
        for folder in ("loadbalancer-leader", "members", "communicator"):
            client.ensure_path(f"{self._root}/{folder}")
        self._join(client)
        first = self._stands_first(client)
        if first:
            self._assign(client)
        active = first and self._assignment(client).get("balancerId") == self.instance
        with self._lock:
            if losses == self._losses:
                led = begun < self._until
                if active and not led and (losses or self._until):
                    # After an outage, living consumers may look dead until they send a heartbeat.
                    self._from = begun + int(2e6 * self._session)
                if active != led:
                    text = f"{self.instance} is {'the' if active else 'no longer the'} leader"
                    _log.info(text, extra={"holder": self.instance, "leads": active})
                self._until = begun + int(1e6 * (self._every + self._session)) if active else 0

    def _join(self, client: KazooClient) -> None:
        path = f"{self._root}/members/{self.instance}"
        if client.exists(path, watch=self._changed) is None:
            try:
                client.create(path, ephemeral=True)
            except NodeExistsError:
                # It belongs to an earlier session, which is about to end.
                self._loop.wake()

    def _stands_first(self, client: KazooClient) -> bool:
        election = f"{self._root}/loadbalancer-leader"
        candidates = client.get_children(election)
        if self.instance not in (name[:-_SUFFIX] for name in candidates):
            client.create(f"{election}/{self.instance}-", ephemeral=True, sequence=True)
        candidates = client.get_children(election, watch=self._changed)
        foremost = min(candidates, key=lambda name: name[1 - _SUFFIX :], default="")
        return str(foremost)[:-_SUFFIX] == self.instance

    def _assign(self, client: KazooClient) -> None:
        """Assign the partitions to the members in turn."""
        members = sorted(client.get_children(f"{self._root}/members", watch=self._changed))
        partitions = sorted(self._partitions())
        communicator = f"{self._root}/communicator"
        for number, member in enumerate(members):
            dealt = partitions[number :: len(members)]
            assignment = json.dumps({"balancerId": self.instance, "partitions": dealt}).encode()
            try:
                client.create(f"{communicator}/{member}", assignment)
            except NodeExistsError:
                client.set(f"{communicator}/{member}", assignment)
        for gone in set(client.get_children(communicator)) - set(members):
            client.delete(f"{communicator}/{gone}")

    def _assignment(self, client: KazooClient) -> dict[str, object]:
        """Return the leader's assignment to this instance."""
        path = f"{self._root}/communicator/{self.instance}"
        try:
            data, _ = client.get(path)
        except NoNodeError:
            return {}
        assignment = json.loads(data)
        return assignment if isinstance(assignment, dict) else {}
