"""Combining: many threads ask for the same kind of thing, and one of them does it for all.

Who finds nobody at work does it, for all who have asked by then; who asks meanwhile waits, and the
first of those goes next. So a transaction serves as many threads as there are, and a thread that is
alone waits for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")


class _Asked(Generic[Ask, Answer]):
    __slots__ = ("answer", "ask", "done", "error", "woken")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.done = False
        self.woken = threading.Event()


class Coalescer(Generic[Ask, Answer]):
    """
    Calls *work* with what was asked; it gives as many answers, or raises for all of them.

    *alone* is held meanwhile: combiners that share it do not stand in each other's way.
    """

    def __init__(
        self, work: Callable[[list[Ask]], Sequence[Answer]], alone: AbstractContextManager[object]
    ) -> None:
        self._work = work
        self._alone = alone
        self._lock = threading.Lock()
        self._waiting: list[_Asked[Ask, Answer]] = []
        self._led = False

    def __call__(self, ask: Ask) -> Answer:
        """Ask, and wait for the answer."""
        mine: _Asked[Ask, Answer] = _Asked(ask)
        with self._lock:
            self._waiting.append(mine)
            leads = not self._led
            self._led = True
        if not leads:
            mine.woken.wait()
        if not mine.done:
            self._lead()
        if mine.error is not None:
            raise mine.error
        return mine.answer  # type: ignore[return-value]

    def _lead(self) -> None:
        with self._alone:
            with self._lock:
                asked, self._waiting = self._waiting, []
            try:
                answers = self._work([each.ask for each in asked])
                for each, answer in zip(asked, answers, strict=True):
                    each.answer = answer
            except BaseException as error:  # noqa: BLE001 - each of those who have asked raises it
                for each in asked:
                    each.error = error
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._led = following is not None
        for each in asked:
            each.done = True
            each.woken.set()
        if following is not None:
            following.woken.set()
