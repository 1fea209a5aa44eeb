"""Callers: each asks a worker for a chat, alone or with a key for repeated requests, and may leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from gateway.api.endpoints.chat import ChatEndpoint
from gateway.errors import GatewayError
from gateway.http_server.exchange import Exchange
from gateway.http_server.reply import ResponseWriter
from gateway.inference.call_stages import CallRequest
from gateway.inference.endpoint import Received
from gateway.inference.idempotency import request_digest
from gateway.inference.pipeline import Pipeline
from gateway.ledger.api_key import ApiKey
from tests.money.in_process import MemoryBody, MemoryExchange
from tests.simulation.http_callers import ask

if TYPE_CHECKING:
    from tests.simulation.machines import Worker
    from tests.simulation.world import World

PATH = "/v1/chat/completions"
LEAVES, STREAMS, REPEATS = 0.15, 0.6, 0.2  # of the calls


class Outcome(Struct):
    """What a caller saw of one call."""

    number: int
    request_id: str
    stream: bool
    name: str = ""  # its Idempotency-Key
    status: int = 0
    text: str = ""
    whole: bool = False
    replayed: bool = False
    left: bool = False
    dead: bool = False  # its worker was killed
    key: str = ""  # the id of the key
    machine: str = ""
    began: float = 0.0  # seconds of the clock
    ended: float = 0.0


class Body(MemoryBody):
    """A body with the digest that a repeated request is known by."""

    def digest(self, path: str) -> str:
        return request_digest(path, self.take())


class Caller:
    """All callers of a world; they have its keys."""

    def __init__(self, world: World, outcomes: list[Outcome]) -> None:
        self._world, self._outcomes = world, outcomes
        self._endpoint = ChatEndpoint()

    async def call(self, number: int) -> None:
        """One request, and its repetition if it has a key for that and failed."""
        dice = self._world.dice
        stream, name = dice.random() < STREAMS, f"again-{number}" if dice.random() < REPEATS else ""
        leaves_after = dice.expovariate(1 / 0.3) if dice.random() < LEAVES else None
        for attempt in range(3 if name else 1):
            outcome = await self._ask(number, stream, name, leaves_after if not attempt else None)
            if outcome is None or outcome.whole:
                return
            await asyncio.sleep(dice.uniform(0.1, 2.0) if attempt == 0 else 75.0)

    async def _ask(self, number: int, stream: bool, name: str, leaves_after: float | None) -> Outcome | None:
        workers = [worker for machine in self._world.machines for worker in machine.workers]
        if not workers:
            return None
        worker = self._world.dice.choice(workers)
        key: ApiKey = self._world.dice.choice(self._world.callers)
        outcome = Outcome(
            number, "", stream, name, key=key.id, machine=worker.process.name[:2], began=self._world.clock.passed
        )
        document = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": f"call {number}"}]}
        content = msgspec.json.encode(document)
        if self._world.over_http:
            await self._over_http(outcome, worker, content, leaves_after)
        else:
            await self._in_process(outcome, worker, key, content, leaves_after)
        outcome.ended = self._world.clock.passed
        outcome.dead = not worker.process.alive
        self._world.note(
            f"call {number} {outcome.request_id} on {worker.process.name}: {outcome.status}"
            f"{' stream' if stream else ''} {len(outcome.text.split())} words"
            + "".join(f", {word}" for word in ("whole", "replayed", "left", "dead") if getattr(outcome, word))
        )
        self._outcomes.append(outcome)
        return outcome

    async def _over_http(self, outcome: Outcome, worker: Worker, content: bytes, leaves_after: float | None) -> None:
        world = self._world
        address, token = worker.process.name, world.tokens[outcome.key]
        reply = await ask(
            world.network, address, PATH, token, content, name=outcome.name, leaves_after=leaves_after
        )  # fmt: skip
        if reply is not None:
            outcome.status, outcome.request_id = reply.status, reply.header("x-request-id")
            outcome.replayed = reply.header("idempotent-replayed") == "true"
            outcome.left = reply.left
            body, ended = reply.body()
            outcome.text, outcome.whole = _read(body, ended and not reply.left, outcome.stream, outcome.status)

    async def _in_process(
        self, outcome: Outcome, worker: Worker, key: ApiKey, content: bytes, leaves_after: float | None
    ) -> None:
        exchange, body = MemoryExchange(), Body(content)

        async def run() -> None:
            gateway = worker.gateway
            reply = ResponseWriter(cast("Exchange", exchange), gateway.ids.request_id())
            outcome.request_id = reply.headers["x-request-id"]
            asked = CallRequest(outcome.request_id, self._endpoint, key, reply)
            asked.task = asyncio.current_task()
            if leaves_after is not None:
                asyncio.get_running_loop().call_later(leaves_after, leave, asked)
            try:
                await Pipeline(gateway).run(
                    asked, self._endpoint, Received(cast("Any", body), PATH, outcome.name or None)
                )
            except GatewayError as error:
                reply.send_error(error)
            except asyncio.CancelledError:
                pass  # the caller has left before the call was admitted
            outcome.status, outcome.replayed = reply.status, asked.outcome == "replayed"

        def leave(asked: CallRequest) -> None:
            if exchange.left or exchange.finished:
                return
            exchange.left = outcome.left = True
            call = asked.call
            if call is not None and call.running:
                worker.gateway.disconnects.disconnect(call)
            else:
                asked.client_gone = True
                if call is not None:
                    call.client_gone = True

        await worker.process.finish(run())
        outcome.text, outcome.whole = _read(exchange.body, exchange.finished, outcome.stream, outcome.status)


def _read(body: bytes, ended: bool, stream: bool, status: int) -> tuple[str, bool]:
    """The words that a caller got, and whether the answer is whole."""
    if not stream:
        if status != 200 or not ended:
            return "", False
        answer = msgspec.json.decode(body)
        return answer["choices"][0]["message"]["content"], True
    text = ""
    for line in body.decode(errors="ignore").split("\n"):
        if line.startswith("data: {") and line.endswith("}"):
            document = msgspec.json.decode(line[6:])
            text += "".join(choice["delta"].get("content") or "" for choice in document.get("choices", ()))
    return text, body.endswith(b"data: [DONE]\n\n") and ended
