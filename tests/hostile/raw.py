"""A client that writes bytes nobody should, and checks that each answer is the error that docs/errors.md names."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from .garbage import Case

ANSWER_WITHIN = 10.0  # seconds
RESET = struct.pack("ii", 1, 0)  # SO_LINGER


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def error(self) -> dict[str, str | None]:
        """The error of the body; one in Anthropic's or Google's shape in the words of OpenAI's."""
        document = msgspec.json.decode(self.body)
        error: dict[str, Any] = document["error"]
        if "request_id" in document:
            assert (list(document), list(error)) == (["type", "error", "request_id"], ["type", "message", "details"])
            details = document["error"]["details"]
            return {
                "message": error["message"],
                "type": error["type"],
                "param": details["param"],
                "code": details["error_code"],
            }
        if "status" in error:
            assert (list(document), list(error)) == (["error"], ["code", "message", "status", "details"])
            assert error["code"] == self.status
            info = error["details"][0]
            param = info["metadata"].get("param")
            return {"message": error["message"], "type": error["status"], "param": param, "code": info["reason"]}
        return error


def assert_refusal(answer: Answer, *, head: bool = False) -> None:
    """The answer is a 4xx in the wire's one shape, and gives nothing of the inside away."""
    assert 400 <= answer.status < 500, answer
    assert answer.headers["content-type"] == "application/json", answer
    assert answer.headers["x-request-id"].startswith("req_"), answer
    assert answer.headers["x-content-type-options"] == "nosniff", answer
    assert answer.headers["cache-control"] == "no-store", answer
    if head:
        return
    error = answer.error
    assert list(error) == ["message", "type", "param", "code"], answer
    assert error["message"]
    assert len(error["message"]) <= 2000
    assert error["type"]
    assert error["code"] is None or isinstance(error["code"], str)
    assert_clean(answer)


def assert_clean(answer: Answer) -> None:
    """The body gives nothing of the inside away."""
    for inside in (b"Traceback", b'File "', b".py", b"Error(", b"127.0.0.1"):
        assert inside not in answer.body, answer


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Write; a server that has closed already is no fault."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def read(self, *, head: bool = False) -> Answer | None:
        """The next answer, None when the connection ends without one."""
        async with asyncio.timeout(ANSWER_WITHIN):
            try:
                block = await self.reader.readuntil(b"\r\n\r\n")
                lines = block.decode("latin-1").split("\r\n")[:-2]
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
                length = 0 if head else int(headers["content-length"])
                return Answer(int(lines[0].split(" ")[1]), headers, await self.reader.readexactly(length))
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def read_all(self) -> list[Answer]:
        """Every answer until the server closes."""
        answers: list[Answer] = []
        while (answer := await self.read()) is not None:
            answers.append(answer)
        return answers

    def finish(self) -> None:
        """Send a FIN."""
        with contextlib.suppress(OSError):
            self.writer.write_eof()

    def reset(self) -> None:
        """Close with a RST."""
        sock = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()


@asynccontextmanager
async def connection(address: tuple[str, int], source: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    """A connection to the gateway, from an address of the loopback."""
    reader, writer = await asyncio.open_connection(*address, limit=1 << 20, local_addr=(source, 0))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


Check = Callable[..., None]


async def send_garbage(address: tuple[str, int], cases: Iterable[Case], refused: Check = assert_refusal) -> int:
    """Each case on a connection of its own; how many were tried. `refused` checks an answer that is an error."""
    tried = 0
    for case in cases:
        async with connection(address) as client:
            await client.send(case.data)
            if case.ending == "rst":
                client.reset()
            else:
                await _check(client, case, refused)
        tried += 1
    return tried


async def _check(client: RawClient, case: Case, refused: Check) -> None:
    if case.ending == "fin":
        client.finish()
    for _ in range(case.answers - 1):
        good = await client.read()
        assert good is not None, case
        assert good.status == 200, case
    answer = await client.read(head=case.head)
    assert (answer.status if answer else 0) in case.statuses, (case.way, case.data[:300], answer)
    if answer is not None and answer.status >= 400:
        refused(answer, head=case.head)
