"""How the running calls of a machine get from its workers to the console, and a cancellation back.

::

    console (ConsoleCalls) ──ask──► supervisor (answer_console) ──ask──► every worker (call_questions)

A worker that does not answer within `ANSWER_WITHIN` seconds is left out, and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from gateway.admin.running_calls import Found
from gateway.inference.running_calls import CallQuery, RunningCall
from gateway.runtime.call_questions import Cancellation
from gateway.runtime.local_requests import CANCEL, LIST
from gateway.runtime.questions import Questions, read_question, write_reply
from gateway.runtime.worker_process import WorkerProcess

ANSWER_WITHIN = 2.0  # seconds for a worker
RELAY_WITHIN = 3.0  # seconds for the supervisor, which waits for the workers


class Asked(Struct, frozen=True, array_like=True):
    """The answers of the workers, and how many gave none."""

    answers: list[bytes]
    silent: int


_found = msgspec.msgpack.Decoder(list[RunningCall])
_asked = msgspec.msgpack.Decoder(Asked)


async def answer_console(payload: bytes, workers: Sequence[WorkerProcess], send: Callable[[str, bytes], None]) -> None:
    """The supervisor's part: ask all processes that serve calls, also those that drain, and send their answers."""
    question = read_question(payload)
    lives = [life for worker in workers for life in worker.lives if life.ready]
    answers = await asyncio.gather(
        *(life.questions.ask(question.name, question.payload, within=ANSWER_WITHIN) for life in lives)
    )
    given = [answer for answer in answers if answer is not None]
    send("answer", write_reply(question, msgspec.msgpack.encode(Asked(given, len(answers) - len(given)))))


class ConsoleCalls:
    """The console's part: the calls of all workers of this machine."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def list(self, query: CallQuery) -> Found:
        """At most `query.limit` calls of all workers together, in the order of their admission."""
        found = await self._ask(LIST, msgspec.msgpack.encode(query))
        return Found(sorted(found.calls, key=lambda call: call.position)[: query.limit], found.silent)

    async def cancel(self, request_id: str, accounts: Sequence[str]) -> Found:
        """The call that was cancelled, if a worker has it."""
        return await self._ask(CANCEL, msgspec.msgpack.encode(Cancellation(request_id, accounts)))

    async def _ask(self, name: str, payload: bytes) -> Found:
        answer = await self._questions.ask(name, payload, within=RELAY_WITHIN)
        if answer is None:
            return Found([], 1)
        asked = _asked.decode(answer)
        return Found([call for part in asked.answers for call in _found.decode(part)], asked.silent)
