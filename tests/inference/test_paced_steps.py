"""Work in steps on the event loop leaves most of the loop's time to others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gateway.inference import paced_steps
from gateway.inference.paced_steps import OTHERS, PacedSteps
from tests.polling import turns


class Client:
    """The client of a request."""

    client_gone = False


HERE = Client()


def busy(seconds: float, times: int) -> Iterator[None]:
    """Steps that take so long each."""
    for _ in range(times):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        yield


@pytest.mark.parametrize("together", [1, 3])
async def test_all_stepwise_work_together_leaves_two_thirds_of_the_time(together: int) -> None:
    paced = PacedSteps()
    began, used = time.monotonic(), time.process_time()
    await asyncio.gather(*(paced.run("acme", HERE, busy(0.002, 20)) for _ in range(together)))
    share = (time.process_time() - used) / (time.monotonic() - began)
    assert share < 1.4 / (1 + OTHERS)


async def test_short_steps_run_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine with other work may stop the test for longer than a turn, so time stands still.
    monkeypatch.setattr(paced_steps, "time", SimpleNamespace(monotonic=lambda: 1.0))
    turn = Mock(wraps=(paced := PacedSteps()).turn)
    monkeypatch.setattr(paced, "turn", turn)
    await paced.run("acme", HERE, iter([None] * 1000))
    assert turn.call_count == 1


async def test_error_of_a_step_is_raised_and_other_work_goes_on() -> None:
    def steps() -> Iterator[None]:
        yield
        raise ValueError("bad text")

    paced = PacedSteps()
    for _ in range(2):
        with pytest.raises(ValueError, match="bad text"):
            await paced.run("acme", HERE, steps())
    await paced.run("acme", HERE, iter([None]))


async def test_accounts_take_turns_however_many_bodies_one_of_them_sends() -> None:
    paced, ended = PacedSteps(), list[str]()

    async def work(account: str) -> None:
        await paced.run(account, HERE, busy(0.001, 1))
        ended.append(account)

    await asyncio.gather(*(work("hostile") for _ in range(20)), work("healthy"))
    assert ended.index("healthy") <= 2
    assert not paced._of_account


async def test_request_whose_client_leaves_gives_up_its_turn_at_once() -> None:
    paced, client, ended = PacedSteps(), Client(), list[str]()

    async def work(name: str, sender: Client) -> None:
        await paced.run("acme", sender, busy(0.0001, 1))
        ended.append(name)

    async with paced.turn("other", HERE):
        gone, stays = (asyncio.create_task(work(name, sender)) for name, sender in (("gone", client), ("stays", HERE)))
        await turns()
        client.client_gone = True
        paced.leave(gone)
        await turns()
        assert gone.cancelled() and not stays.done()
    await stays
    with pytest.raises(asyncio.CancelledError):
        await work("gone before its next turn", client)
    assert ended == ["stays"]
    assert not paced._waiting


async def test_task_that_waits_for_something_else_is_not_cancelled() -> None:
    paced, done = PacedSteps(), asyncio.Event()
    waiting = asyncio.create_task(done.wait())
    await turns()
    paced.leave(waiting)
    done.set()
    assert await waiting
