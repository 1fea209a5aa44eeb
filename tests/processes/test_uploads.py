"""A large upload passes through a worker without ever being in it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tornado.ioloop import IOLoop

from tests.polling import until
from tests.processes.conftest import Serve

MIB = 1 << 20
SIZE = 90 * MIB
MODELS = """
[providers.up]
plugin = "openai"
base_url = "{base_url}"

[models.scribe]
provider = "up"
endpoints = ["transcription"]
price = {{ per_second_in = 0.0001 }}
"""


class Listener:
    """A transcriber that counts what it gets, without keeping it."""

    def __init__(self) -> None:
        self.size = 0
        self.hash = hashlib.sha256()
        self.lengths: list[int | None] = []
        self.base_url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/audio/transcriptions", self._listen)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _listen(self, request: web.Request) -> web.Response:
        self.size, self.hash = 0, hashlib.sha256()
        self.lengths.append(request.content_length)
        async for part in await request.multipart():
            if part.name == "file":
                while piece := await part.read_chunk(MIB):
                    self.size += len(piece)
                    self.hash.update(piece)
            else:
                await part.read()
        return web.json_response({"text": "a long silence", "usage": {"type": "duration", "seconds": 3}})


@pytest.fixture
def listener(io_loop: IOLoop) -> Iterator[Listener]:
    """The upstream."""
    listener = Listener()
    io_loop.run_sync(listener.start)
    yield listener
    io_loop.run_sync(listener.close)


def head(size: int) -> bytes:
    """The header of a WAV of so many bytes of sound."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(b"")
    raw = bytearray(buffer.getvalue())
    raw[4:8], raw[40:44] = (36 + size).to_bytes(4, "little"), size.to_bytes(4, "little")
    return bytes(raw)


async def form(size: int, digest: Any) -> AsyncIterator[bytes]:
    """A form with a sound of that many bytes, made as it is sent."""
    yield b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\nscribe\r\n'
    yield b'--edge\r\nContent-Disposition: form-data; name="file"; filename="long.wav"\r\n\r\n'
    noise = os.urandom(MIB)
    pieces = [head(size - 44), *[noise] * (size // MIB)]
    for piece in pieces:
        piece = piece[:size]
        size -= len(piece)
        digest.update(piece)
        yield piece
    yield b"\r\n--edge--\r\n"


def memory(pid: int, what: str) -> int:
    """Bytes of a process: VmRSS as it is, VmHWM as it has ever been."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


async def upload(gateway: Any, size: int) -> tuple[int, Any, str]:
    """Send one; the status, the answer and the hash of what was sent."""
    digest = hashlib.sha256()
    headers = {
        "Authorization": f"Bearer {gateway.api_key}",
        "Content-Type": "multipart/form-data; boundary=edge",
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.base_url}/audio/transcriptions", data=form(size, digest), headers=headers) as answer,
    ):
        return answer.status, await answer.json(), digest.hexdigest()


async def test_upload_of_90_mib_adds_less_than_8_mib_to_the_worker(serve: Serve, listener: Listener) -> None:
    gateway = await serve(MODELS.format(base_url=listener.base_url))
    worker = gateway.workers[0]
    for _ in range(2):
        assert (await upload(gateway, 2 * MIB))[0] == 200  # what the first ones load stays
    before = memory(worker, "VmRSS")
    status, document, sent = await upload(gateway, SIZE)
    grown = memory(worker, "VmHWM") - before
    assert (status, document["text"]) == (200, "a long silence")
    assert (listener.size, listener.hash.hexdigest()) == (SIZE, sent)
    assert listener.lengths[-1] is not None, "a server that wants a length was not told one"
    assert grown < 8 * MIB, f"{grown / MIB:.1f} MiB"
    await nothing_is_left(gateway, worker)


async def test_client_that_disconnects_during_an_upload_leaves_nothing(serve: Serve, listener: Listener) -> None:
    gateway = await serve(MODELS.format(base_url=listener.base_url))
    worker = gateway.workers[0]
    task = asyncio.ensure_future(upload(gateway, SIZE))
    await until(lambda: spooled(worker) > 0)
    task.cancel()
    await asyncio.wait([task])
    await nothing_is_left(gateway, worker)
    assert not listener.lengths


def spooled(pid: int) -> int:
    """Open files of a process that no name leads to."""
    found = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += "(deleted)" in str(link.readlink())
        except FileNotFoundError:
            continue
    return found


async def nothing_is_left(gateway: Any, worker: int) -> None:
    """No file, named or not."""
    assert list((gateway.data_dir / "tmp").iterdir()) == []
    await until(lambda: not spooled(worker))
