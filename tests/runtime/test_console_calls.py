"""The console's questions about running calls end with their askers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.inference.running_calls import CallQuery
from gateway.runtime.console_calls import ConsoleCalls, ConsoleRelay
from gateway.runtime.other_machines import MachineAnswer
from gateway.runtime.questions import Questions


class Wire:
    """A console and its supervisor, whose machines do not answer before `may_end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.running, self.may_end = 0, 0, asyncio.Event()
        self.tasks = set[asyncio.Task[None]]()
        self.relay = ConsoleRelay("a", lambda: "a:8080", list)
        monkeypatch.setattr(self.relay.others, "ask", self._ask)
        self.questions = Questions(self._to_supervisor)
        self.calls = ConsoleCalls(self.questions)

    def _to_supervisor(self, name: str, payload: bytes) -> None:
        if name == "drop":
            self.relay.drop(payload)
        else:
            task = asyncio.create_task(self.relay.answer(payload, lambda _, reply: self.questions.receive(reply)))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _ask(self, *args: Any, **rest: Any) -> tuple[list[MachineAnswer], int]:
        self.asked += 1
        self.running += 1
        try:
            await self.may_end.wait()
        finally:
            self.running -= 1
        return [], 0


@pytest.mark.holds("admin-api.md#running-calls-1", "security.md#shares-5")
@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_list_whose_asker_leaves_is_not_asked_for_any_more(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    wire = Wire(monkeypatch)
    for number in range(1, 50):
        asking = asyncio.create_task(wire.calls.list(CallQuery((), number, None)))
        await asyncio.sleep(0)  # the question is sent
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0)
    assert wire.running == 0 and not wire.relay._open
    wire.may_end.set()
    assert (await wire.calls.list(CallQuery((), 1, None))).silent_machines == 0


async def test_cancellation_whose_asker_leaves_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch)
    asking = asyncio.create_task(wire.calls.cancel("req_1", ()))
    for _ in range(5):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert wire.running == 1
    wire.may_end.set()
    await asyncio.gather(*wire.tasks)
    assert wire.running == 0 and wire.asked == 1 and not wire.relay._open
