"""The console's socket in the data directory: requests of this machine's workers and commands, for this user only.

::

    answer = await LocalClient(data_dir).ask("usage", payload)     # the answer's bytes, or the error that it was

A connection carries one request and one answer, each with its length. `data_dir/console.socket` names the socket, which
is beside it or, if the path is longer than a unix socket may have, in a short private folder.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.errors import Forbidden, GatewayError, InternalError, InvalidValue, NotFound, Unavailable
from gateway.log import gateway_log
from gateway.store.embedded.home import socket_path, write_note

NOTE, SOCKET = "console.socket", "console.sock"
MOST = 64 * 1024 * 1024  # bytes of a request or an answer
ANSWER_WITHIN = 5.0  # seconds

Answers = Callable[[str, bytes], Awaitable[bytes]]

# The requests by name.
USAGE = "usage"  # with a `UsageQuestion`
RECEIPT = "receipt"  # with a `ReceiptQuestion`
LIST, CANCEL = "list calls", "cancel call"  # with a `CallsRequest`
CONFIGURATION = "configuration"  # without a payload

_LENGTH = struct.Struct("!I")
_ERRORS: dict[int, type[GatewayError]] = {400: InvalidValue, 403: Forbidden, 404: NotFound}


class _Request(Struct, array_like=True, frozen=True):
    name: str
    payload: bytes


class _Answer(Struct, array_like=True, frozen=True):
    payload: bytes = b""
    status: int = 200
    message: str = ""
    code: str | None = None
    param: str | None = None
    detail: str = ""


class LocalServer:
    """The console's end: `answers(name, payload)` returns the answer's bytes or raises a GatewayError."""

    def __init__(self, data_dir: Path, answers: Answers) -> None:
        self._data_dir = data_dir
        self._answers = answers
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; OSError or StoreSetupError if it is not possible. The socket of an earlier process is replaced."""
        path = socket_path(self._data_dir, self._data_dir, SOCKET)
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path)
        finally:
            os.umask(mask)
        write_note(self._data_dir / NOTE, f"{path}\n")

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering: asyncio.Task[_Answer] | None = None
        try:
            request = msgspec.msgpack.decode(await _receive(reader), type=_Request)
            answering = asyncio.ensure_future(self._answer(request))
            leaving = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if answering.done():
                await _send(writer, answering.result())
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            gateway_log.debug("the local socket: %s", error)
        finally:
            if answering is not None:
                answering.cancel()  # the client has gone: what is not begun need not be
            writer.close()

    async def _answer(self, request: _Request) -> _Answer:
        try:
            return _Answer(await self._answers(request.name, request.payload))
        except Exception as error:
            # The edge: every exception becomes an answer.
            if not isinstance(error, GatewayError):
                gateway_log.error("%s failed on the local socket", request.name, exc_info=error)
                error = InternalError()
            return _Answer(b"", error.status, error.message, error.code, error.param, error.log_text())


class LocalClient:
    """The end of a worker or a command."""

    def __init__(self, data_dir: Path) -> None:
        self._note = data_dir / NOTE

    async def ask(self, name: str, payload: bytes) -> bytes:
        """The answer; Unavailable without one in `ANSWER_WITHIN` seconds, or the error that the console raised."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                answer = await self._exchange(_Request(name, payload))
        except (OSError, EOFError, ValueError) as error:  # TimeoutError is an OSError
            raise Unavailable(
                "The console process of the gateway does not answer",
                detail=f"{type(error).__name__}: {error}".rstrip(": "),
            ) from None
        if answer.status != 200:
            kind = _ERRORS.get(answer.status, Unavailable)
            raise kind(answer.message, code=answer.code, param=answer.param, detail=answer.detail)
        return answer.payload

    async def _exchange(self, request: _Request) -> _Answer:
        reader, writer = await asyncio.open_unix_connection(self._note.read_text().strip())
        try:
            await _send(writer, request)
            return msgspec.msgpack.decode(await _receive(reader), type=_Answer)
        finally:
            writer.close()


async def _send(writer: asyncio.StreamWriter, message: Struct) -> None:
    raw = msgspec.msgpack.encode(message)
    writer.write(_LENGTH.pack(len(raw)) + raw)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MOST:
        raise ValueError(f"a message of {length} bytes")
    return await reader.readexactly(length)


class CallsRequest(Struct, frozen=True, array_like=True):
    """A command's list of running calls, or the cancellation of one; `login` is who runs the command."""

    login: str
    account: str = ""
    limit: int = 1000
    request_id: str = ""
