"""Calls over sockets: a caller's connection to the gateway's server, and the gateway's to a server of every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from gateway.accounts.key_record import CreatedKey
from gateway.inference.call import Call
from gateway.runtime.gateway import Gateway
from gateway.testing import Reply
from gateway.testing import Seen as UpstreamSeen
from tests.money.cases import Case
from tests.money.dialects import Piece
from tests.money.ingress import Ingress, ingress_of
from tests.money.observed import Seen
from tests.money.rounds import NO_TRUTH
from tests.money.upstreams import NAME, Script, Upstreams
from tests.polling import until

FRAMES = 8  # that a stream is sent in, if its caller leaves
INTERVAL = 0.004  # seconds between them
DELAY = 0.04  # seconds before an answer whose caller leaves before it
MOST = 1 << 20  # bytes read at once
END = b"\r\n0\r\n\r\n"  # of a chunked body


class Caller:
    """What one caller has read."""

    def __init__(self, ingress: Ingress) -> None:
        self.ingress = ingress
        self.sent = asyncio.Event()  # an upstream has the request
        self.received = b""
        self.request_id = ""

    @property
    def words(self) -> int:
        """The words of content."""
        return self.ingress.words(self.received)


class OverSockets:
    """A `Driver`; `answer` is for a `FakeUpstream`."""

    def __init__(self, gateway: Gateway, upstreams: Upstreams, port: int) -> None:
        self._gateway, self._upstreams, self._port = gateway, upstreams, port
        self._callers: dict[str, Caller] = {}
        self._follow_calls()

    def _follow_calls(self) -> None:
        """Know the request id of a case whose caller leaves before it has the head of the answer."""
        add = self._gateway.active_calls.add

        def added(call: Call) -> None:
            found = NAME.search(call.request.body)
            assert found is not None
            self._callers[found.group().decode()].request_id = call.request_id
            add(call)

        self._gateway.active_calls.add = added  # type: ignore[method-assign]

    def answer(self, seen: UpstreamSeen) -> Reply:
        """The reply of a case."""
        case, truth, script = self._upstreams.receive(seen.body)
        truth.words = sum(piece.words for piece in script.pieces)  # at the most: the gateway may close before
        self._callers[case.name].sent.set()
        return _reply(case, script)

    async def call(self, case: Case, key: CreatedKey) -> Seen:
        """One request on a connection of its own."""
        ingress = ingress_of(case)
        caller = self._callers[case.name] = Caller(ingress)
        body = msgspec.json.encode(ingress.document(case))
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(_request(body, key, ingress.path_of(case)))
            left = await self._read(case, caller, reader)
            if left and case.draw % 3:
                writer.transport.abort()
        finally:
            writer.close()
        calls = self._gateway.active_calls._calls
        await until(lambda: caller.request_id not in calls)
        del self._callers[case.name]
        text = caller.received
        seen = Seen(case, NO_TRUTH, caller.request_id, len(body), left=left, words=caller.words)
        seen.status = int(text[9:12]) if text else 0
        whole = text.endswith(END) and ingress.ends(text.removesuffix(END))
        seen.whole = not left and seen.status == 200 and (not case.stream or whole)
        return seen

    async def _read(self, case: Case, caller: Caller, reader: asyncio.StreamReader) -> bool:
        """Read until the answer ends or the caller leaves; whether it left."""
        early = case.cell.moment == "sent" or (not case.stream and case.cell.moment in ("first", "middle"))
        if early:
            reading = asyncio.ensure_future(reader.read(MOST))
            sent = asyncio.ensure_future(caller.sent.wait())
            await asyncio.wait([reading, sent], return_when=asyncio.FIRST_COMPLETED)
            sent.cancel()
            if not reading.done():
                reading.cancel()
                return True
            caller.received += reading.result()
        while data := await _next(reader):
            caller.received += data
            if _leaves(case, caller):
                return True
        return False


async def _next(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(MOST)
    except ConnectionResetError:  # a cut answer
        return b""


def _leaves(case: Case, caller: Caller) -> bool:
    """Whether the moment to leave has come."""
    if not case.stream:
        return False
    match case.cell.moment:
        case "first":
            return caller.words > 0
        case "middle":
            return caller.words > case.words // 2
        case "finish":
            return caller.ingress.finish in caller.received
    return False


def _request(body: bytes, key: CreatedKey, path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key.text}\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _reply(case: Case, script: Script) -> Reply:
    leaves = case.cell.moment != "never"
    headers = {"Content-Type": script.media_type}
    delay = DELAY if case.cell.moment == "sent" or (leaves and not case.stream) else 0.0
    if script.end == "silence" and not script.pieces:
        return Reply.silence()
    if script.end == "whole" and script.media_type == "application/json":
        body = b"".join(piece.data for piece in script.pieces)
        return Reply(status=script.status, headers=headers, body=body, delay=delay)
    frames = _frames(script.pieces, slowly=leaves)
    interval = INTERVAL if leaves else 0.0
    return Reply(headers=headers, frames=frames, end=script.end, delay=delay, interval=interval)


def _frames(pieces: Sequence[Piece], *, slowly: bool) -> list[bytes]:
    """The pieces in what is written at once; the end of the content and the counts are written by themselves."""
    if not slowly:
        return [piece.data for piece in pieces]
    content = [piece.data for piece in pieces if piece.stage == "content"]
    size = -(-len(content) // FRAMES) or 1
    head = [piece.data for piece in pieces if piece.stage == "head"]
    rest = [piece.data for piece in pieces if piece.stage not in ("head", "content")]
    return [*head, *(b"".join(part) for part in _batches(content, size)), *rest]


def _batches(items: list[bytes], size: int) -> list[list[bytes]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
