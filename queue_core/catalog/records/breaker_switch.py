"""`BreakerSwitch`: a person's control of a circuit breaker."""

from __future__ import annotations

from typing import Any

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import breakers
from queue_core.errors import BadOption
from queue_core.handling.breakers.breaker import WHOLE
from queue_core.handling.breakers.keys import LONGEST, LONGEST_NAME, key_of, value_of
from queue_core.handling.breakers.states import CLOSED, OPEN
from queue_core.support.interruption import shielded


@shielded
class BreakerSwitch:
    """
    Opens and closes a circuit breaker by hand, in all processes that share it.

    `Store.breaker` makes it. The processes notice a change within a second. The view ``breakers``
    shows the state.

    Attributes:
        name: The breaker's name.
    """

    def __init__(self, catalog: Catalog, name: str, value: Any = ...) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise BadOption(f"breaker: name={name!r}: use a text of 1 to {LONGEST_NAME} characters")
        if value is not ... and not isinstance(value, str | int | bool | None):
            raise BadOption(
                f"breaker {name!r}: value={value!r}: use a text, a whole number, a bool or None"
            )
        self.name = name
        self._catalog = catalog
        self._key = WHOLE if value is ... else key_of(value)
        if len(self._key) > LONGEST:
            raise BadOption(f"breaker {name!r}: the value is longer than {LONGEST} characters")

    def open(self) -> None:
        """
        Fire no messages until `close` or `release`; no probe closes the breaker.

        Raises:
            CatalogUnavailable: The catalog cannot be reached.
        """
        self._force(OPEN)

    def close(self) -> None:
        """
        Fire messages until `open` or `release`, whatever share of the calls fails.

        Raises:
            CatalogUnavailable: The catalog cannot be reached.
        """
        self._force(CLOSED)

    def release(self) -> None:
        """
        Leave the breaker to itself again; if it is open, a probe is due at once.

        Raises:
            CatalogUnavailable: The catalog cannot be reached.
        """
        self._force(None)

    def _force(self, to: str | None) -> None:
        self._catalog.write(lambda connection: breakers.force(connection, self.name, self._key, to))

    def __repr__(self) -> str:
        value = "" if self._key == WHOLE else f", value {value_of(self._key)!r}"
        return f"<BreakerSwitch of {self.name!r}{value}>"
