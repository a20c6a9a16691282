"""A store as plain dicts and lists: what every verb should do, one message at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from queue_core.values.model import Magazine, State
from queue_core.verbs.intervene import Act

#: (queue, magazine, shard)
Place = tuple[str, Magazine, int]


@dataclass
class Message:
    """One message."""

    id: int
    number: int
    customer: str
    queue: str
    shard: int
    magazine: Magazine = Magazine.MAIN
    state: State = State.LOADED
    attempts: int = 0
    deliveries: int = 0
    #: Who holds it: the consumer's name and the ticket.
    holder: tuple[str, int] | None = None
    #: Whether a person must act before it leaves the sideline.
    dead: bool = False
    #: Whether it waits for a time, in the sideline.
    due: bool = False
    #: Whether it came back to main from the sideline.
    returned: bool = False
    #: How often it was lost with its consumer, and among how many.
    lost: int = 0
    lost_among: int = 0

    @property
    def place(self) -> Place:
        return (self.queue, self.magazine, self.shard)


@dataclass
class Model:
    """The place of each message, their order, and the counters."""

    messages: dict[int, Message] = field(default_factory=dict)
    #: The messages of each shard of each magazine, in order, whatever they are doing.
    order: dict[Place, list[int]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[Place, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    #: Tickets of the query that are not done with, and whether somebody has seen them.
    seen: dict[int, bool] = field(default_factory=dict)
    #: The last ticket of each consumer, and the last one that it is done with.
    last: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)

    def load(self, message: Message) -> None:
        self.messages[message.id] = message
        self.order[message.place].append(message.id)
        self.counts[message.place]["loaded"] += 1

    def waiting(self, queue: str, magazine: Magazine) -> dict[int, list[Message]]:
        """What can be fired, shard by shard and in order."""
        shards: dict[int, list[Message]] = {}
        for place, ids in self.order.items():
            if place[:2] == (queue, magazine):
                messages = [self.messages[id] for id in ids]
                shards[place[2]] = [m for m in messages if m.state is State.LOADED]
        return shards

    def in_flight(self, queue: str | None = None) -> list[Message]:
        return [
            message
            for message in self.in_order()
            if message.state is State.FIRED and queue in (None, message.queue)
        ]

    def in_hand(self, queue: str | None = None) -> list[Message]:
        """Messages of tickets: in flight, or quarantined since."""
        return [m for m in self.in_order() if m.holder and queue in (None, m.queue)]

    def any(self, state: State) -> bool:
        """Whether a message is in a state."""
        return any(message.state is state for message in self.messages.values())

    def in_order(self) -> list[Message]:
        """Every message, by queue, magazine and shard, and in order there."""
        return [self.messages[id] for place in sorted(self.order) for id in self.order[place]]

    def fire(self, message: Message, consumer: str, ticket: int) -> None:
        message.state, message.holder = State.FIRED, (consumer, ticket)
        message.deliveries += 1
        self.last[consumer] = max(self.last[consumer], ticket)
        self.counts[message.place]["fired"] += 1

    def delete(self, message: Message) -> None:
        self._take_back(message)
        self.counts[message.place]["deleted"] += 1
        self.order[message.place].remove(message.id)
        del self.messages[message.id]

    def reload(self, message: Message) -> None:
        self._take_back(message)
        self.counts[message.place]["reloaded"] += 1
        message.state, message.holder = State.LOADED, None

    def settle_again(self, message: Message) -> None:
        """Its handler has returned, so it is no suspect."""
        self.reload(message)
        self._clear(message)

    def give_back(self, message: Message) -> None:
        self.reload(message)
        message.deliveries -= 1

    def sideline(self, message: Message) -> None:
        message.attempts += 1
        self._put_aside(message)
        self._clear(message)

    def put_off(self, message: Message) -> None:
        self._put_aside(message)
        self._clear(message)
        message.deliveries -= 1

    def in_life(self, consumer: str) -> list[Message]:
        """Messages in flight of the present life of a consumer."""
        return [
            message
            for message in self.in_flight()
            if message.holder[0] == consumer and message.holder[1] > self.done[consumer]
        ]

    def lose(self, consumer: str) -> Message | None:
        """Count what a dead consumer holds as lost; return the message that is found guilty."""
        held = self.in_life(consumer)
        self.done[consumer] = self.last[consumer]
        guilty = None
        for message in held:
            message.deliveries = max(message.deliveries - 1, 0)
            if message.magazine is Magazine.SIDELINE:
                continue
            if len(held) == message.lost_among == 1:
                guilty = message
            message.lost += 1
            message.lost_among = len(held)
        if guilty is not None:
            self.sweep(guilty)
            guilty.due, guilty.dead = False, True
        return guilty

    def start(self, consumer: str) -> None:
        """A life of a consumer with handlers begins; what an earlier one held waits again."""
        self.lose(consumer)
        for message in self.in_flight():
            if message.holder[0] == consumer:
                self.reload(message)

    @staticmethod
    def _clear(message: Message) -> None:
        message.lost = message.lost_among = 0

    def _put_aside(self, message: Message) -> None:
        self._take_back(message)
        self._move(message, Magazine.SIDELINE, "sidelined")
        message.due = True

    def sweep(self, message: Message) -> None:
        self._move(message, Magazine.SIDELINE, "swept")
        message.due = True

    def shovel(self, message: Message) -> None:
        self.counts[message.place]["fired"] += 1
        self._move(message, Magazine.MAIN, "shovelled")

    def concerns(self, act: Act, message: Message, whose: str) -> bool:
        """Whether an act of a person changes a message; a reload only one that *whose* holds."""
        if act is Act.RELOAD:
            held = message.holder is not None and message.holder[0] == whose
            return held and message.state is State.FIRED
        magazine = {Act.SIDELINE: Magazine.MAIN, Act.REQUEUE: Magazine.SIDELINE}.get(act)
        return message.state is State.LOADED and magazine in (None, message.magazine)

    def intervene(self, act: Act, message: Message) -> None:
        match act:
            case Act.RELOAD:
                self.reload(message)
            case Act.REQUEUE:
                self.shovel(message)
            case Act.SIDELINE:
                self.counts[message.place]["fired"] += 1
                self._move(message, Magazine.SIDELINE, "sidelined")
                message.dead = True
            case Act.DELETE:
                self.counts[message.place]["fired"] += 1
                self.delete(message)

    def leave(self, message: Message) -> None:
        """It goes from the sideline to another queue."""
        self.counts[message.place]["fired"] += 1
        self.counts[message.place]["shovelled"] += 1
        self.order[message.place].remove(message.id)
        del self.messages[message.id]

    def set_apart(self, message: Message) -> None:
        if message.state is State.FIRED:
            # It stays in its ticket.
            self.counts[message.place]["reloaded"] += 1
        self.counts[message.place]["damaged"] += 1
        message.state = State.DAMAGED

    def repair(self, message: Message) -> None:
        if message.holder is not None:
            self._take_back(message)
            return
        self.counts[message.place]["damaged"] -= 1
        message.state = State.LOADED

    def _take_back(self, message: Message) -> None:
        """A quarantined message is in the hand of its ticket again, if it was."""
        if message.state is State.DAMAGED and message.holder is not None:
            self.counts[message.place]["damaged"] -= 1
            self.counts[message.place]["reloaded"] -= 1
            message.state = State.FIRED

    def _move(self, message: Message, magazine: Magazine, how: str) -> None:
        self.counts[message.place][how] += 1
        self.order[message.place].remove(message.id)
        message.magazine, message.state, message.holder = magazine, State.LOADED, None
        message.returned = magazine is Magazine.MAIN
        message.dead = False
        message.due = False
        self.order[message.place].append(message.id)
        self.counts[message.place]["loaded"] += 1
