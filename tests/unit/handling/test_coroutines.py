"""Coroutine functions as handlers."""

import asyncio
import threading
from functools import partial

import pytest

from queue_core.handling.coroutines import Awaited, is_coroutine


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


class Charge:
    async def __call__(self, value: int) -> bool:
        return value > 0


def plain(value: int) -> int:
    return value


@pytest.mark.parametrize("handler", [double, partial(double, 1), Charge(), partial(Charge())])
def test_a_coroutine_function_is_recognised(handler):
    assert is_coroutine(handler)


@pytest.mark.parametrize("handler", [plain, partial(plain, 1), print, Charge, partial(Charge)])
def test_another_function_is_not_one(handler):
    assert not is_coroutine(handler)


def test_each_call_runs_to_its_end():
    assert [Awaited(double)(value) for value in (1, 2)] == [2, 4]
    assert Awaited(Charge())(1) is True


def test_an_exception_reaches_the_caller():
    async def fail() -> None:
        raise ValueError("declined")

    with pytest.raises(ValueError, match="declined"):
        Awaited(fail)()


def test_a_thread_without_a_loop_can_call_it():
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(Awaited(double)(21)))
    thread.start()
    thread.join()

    assert results == [42]


def test_tasks_that_a_call_leaves_are_cancelled_with_it():
    ended: list[str] = []

    async def leave() -> bool:
        async def forever() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        task = asyncio.get_running_loop().create_task(forever())
        await asyncio.sleep(0)
        return not task.done()

    assert Awaited(leave)() is True
    assert ended == ["cancelled"]
