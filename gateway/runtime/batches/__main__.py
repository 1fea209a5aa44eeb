"""The runner's process: `python -m gateway.runtime.batches CHANNEL`, started and watched by the supervisor.

It has the same `Gateway` as a worker, with a journal and an inflight checkpoint of its own, so the supervisor takes
over what a killed one leaves. It shares no event loop with calls. Sharp edge: it has a name of its own among the
processes that share failures of upstreams, because a process of low priority times out when a worker does not.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
from collections.abc import Coroutine

import msgspec
from msgspec import structs

from gateway.accounts.pepper import Peppers
from gateway.config.configuration import Configuration
from gateway.ledger import Journal
from gateway.log import gateway_log
from gateway.runtime import helper
from gateway.runtime.batches.runner import Runner
from gateway.runtime.call_questions import answer_calls
from gateway.runtime.gateway import Gateway
from gateway.runtime.helper import Helper
from gateway.runtime.helper_process import HelperBriefing
from gateway.runtime.interpreter import collect_rarely
from gateway.runtime.ipc import Message
from gateway.runtime.questions import read_question, write_reply
from gateway.store import Store


class Batches:
    """The process."""

    def __init__(self, channel: socket.socket) -> None:
        self._helper = Helper("batches", channel, self._receive)
        self._gateway: Gateway | None = None
        self._newest: bytes = b""  # the configuration of the last reload
        self._tasks: set[asyncio.Task[None]] = set()  # started by messages
        self._one_reload = asyncio.Lock()

    async def run(self) -> None:
        """Run batches until SIGTERM."""
        await self._helper.run(self._run)

    async def _run(self, briefing: HelperBriefing, store: Store) -> None:
        settings = briefing.configuration.settings()
        peppers = briefing.peppers or Peppers(b"")
        gateway = await Gateway.build(
            settings,
            store,
            pepper=peppers.current,
            previous_pepper=peppers.previous,
            journal=Journal(settings.data_dir / "journal"),
            machine=secrets.token_hex(8),
        )
        gateway.watchdog.close()  # a process of low priority stands still often
        collect_rarely()
        self._gateway = gateway
        if self._newest:
            self._reload_soon()
        reporting = asyncio.create_task(self._helper.report_forever(lambda: self._report(gateway)))
        try:
            await Runner(gateway, self._helper.stop).run()
        finally:
            reporting.cancel()
            for task in self._tasks:
                task.cancel()
            await gateway.close()
        self._report(gateway)

    def _report(self, gateway: Gateway) -> None:
        if gateway.journal is not None:
            gateway.metrics.journal_backlog(*structs.astuple(gateway.journal.backlog))
        self._helper.report(gateway.metrics)

    def _receive(self, message: Message) -> None:
        if message.name == "reload":
            self._newest = message.payload
            if self._gateway is not None:
                self._reload_soon()
        elif message.name == "ask":
            self._start(self._answer(message.payload))

    async def _answer(self, payload: bytes) -> None:
        """List or cancel the calls of running lines."""
        if self._gateway is not None:
            question = read_question(payload)
            self._helper.send("answer", write_reply(question, await answer_calls(question, self._gateway.active_calls)))

    def _reload_soon(self) -> None:
        self._start(self._reload(self._newest))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self, payload: bytes) -> None:
        """Use a configuration, unless a newer one arrives before its turn."""
        assert self._gateway is not None
        async with self._one_reload:
            if payload is not self._newest:
                return
            try:
                settings = await asyncio.to_thread(msgspec.msgpack.decode(payload, type=Configuration).settings)
                await self._gateway.reload(settings)
            except Exception as error:
                # Third-party providers are created here and may raise anything; the old configuration stays in use.
                gateway_log.error("the batches keep the old configuration: %s", error)


async def _run(channel: socket.socket) -> None:
    await Batches(channel).run()


if __name__ == "__main__":
    sys.exit(helper.main("batches", sys.argv[1:], _run))
