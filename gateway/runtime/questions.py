"""Questions over a channel between two processes: each has a ticket, and its answer may be absent.

The side that asks has `Questions`; the other side gets the message "ask" and sends the message "answer". If the asker
of a question that ends with its asker has left, the other side gets the message "drop".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import Struct


class Question(Struct, array_like=True, frozen=True):
    """The payload of the message "ask"."""

    ticket: int
    name: str
    payload: bytes = b""


class QuestionReply(Struct, array_like=True, frozen=True):
    """The payload of the message "answer"."""

    ticket: int
    payload: bytes = b""


_questions = msgspec.msgpack.Decoder(Question)
_replies = msgspec.msgpack.Decoder(QuestionReply)


class Questions:
    """The open questions of one process to another."""

    def __init__(self, send: Callable[[str, bytes], None]) -> None:
        self._send = send
        self._asked = 0
        self._open: dict[int, asyncio.Future[bytes | None]] = {}

    async def ask(self, name: str, payload: bytes, *, within: float, ends_with_asker: bool = False) -> bytes | None:
        """The answer; None without one in `within` seconds, or if the other process ends."""
        self._asked += 1
        ticket = self._asked
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._open[ticket] = answer
        self._send("ask", msgspec.msgpack.encode(Question(ticket, name, payload)))
        try:
            async with asyncio.timeout(within):
                return await answer
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            if ends_with_asker:
                self._send("drop", msgspec.msgpack.encode(ticket))
            raise
        finally:
            del self._open[ticket]

    def receive(self, payload: bytes) -> None:
        """A message "answer" has arrived."""
        reply = _replies.decode(payload)
        answer = self._open.get(reply.ticket)
        if answer is not None and not answer.done():
            answer.set_result(reply.payload)

    def close(self) -> None:
        """The other process has ended: no question gets an answer any more."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_result(None)


def read_question(payload: bytes) -> Question:
    """The question in a message "ask"."""
    return _questions.decode(payload)


def read_dropped(payload: bytes) -> int:
    """The ticket in a message "drop"."""
    return msgspec.msgpack.decode(payload, type=int)


def write_reply(question: Question, payload: bytes) -> bytes:
    """The payload of the message "answer" to it."""
    return msgspec.msgpack.encode(QuestionReply(question.ticket, payload))
