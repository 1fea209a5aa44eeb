"""The official Python and Node SDKs on realtime sessions, unmodified."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import AsyncOpenAI, OpenAI

from gateway.testing import RunningGateway
from tests.certificate_files import CertificateFiles
from tests.polling import ENDS_WITHIN

pytestmark = [
    pytest.mark.clients,
    # Of the SDK, which opens its socket in a way that the newest `websockets` gives a warning for.
    pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning"),
]

USAGE = {"text_tokens": 2, "audio_tokens": 4}  # of "grey herons" on the scripted upstream


def test_sync_client_talks(served: RunningGateway) -> None:
    with (
        OpenAI(base_url=served.base_url, api_key=served.api_key) as client,
        client.realtime.connect(model="talks") as connection,
    ):
        assert connection.recv().type == "session.created"
        connection.session.update(session={"type": "realtime", "model": "talks", "instructions": "Be short"})
        connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "grey herons"}]}
        )
        connection.response.create()
        seen: list[Any] = []
        for event in connection:
            seen.append(event)
            if event.type == "response.done":
                break
    updated = next(event for event in seen if event.type == "session.updated")
    assert updated.session.model == "talks"
    said = "".join(event.delta for event in seen if event.type == "response.output_audio_transcript.delta")
    assert said == "grey herons"
    audio = b"".join(base64.b64decode(event.delta) for event in seen if event.type == "response.output_audio.delta")
    assert len(audio) == 2 * 4800
    assert seen[-1].response.usage.output_token_details.to_dict() == USAGE


async def test_async_client_talks(served: RunningGateway) -> None:
    async with (
        AsyncOpenAI(base_url=served.base_url, api_key=served.api_key) as client,
        client.realtime.connect(model="talks") as connection,
    ):
        await connection.response.create()
        async for event in connection:
            if event.type == "response.done":
                assert event.response.status == "completed"
                break


def test_mistake_is_an_error_event(served: RunningGateway) -> None:
    with (
        OpenAI(base_url=served.base_url, api_key=served.api_key) as client,
        client.realtime.connect(model="talks") as connection,
    ):
        connection.recv()
        connection.send({"type": "session.update", "event_id": "mine", "session": {"type": "realtime", "model": "x"}})
        event: Any = connection.recv()
    assert (event.type, event.error.event_id, event.error.param) == ("error", "mine", "session.model")


def test_refused_handshake_is_an_error_of_the_client(served: RunningGateway) -> None:
    with OpenAI(base_url=served.base_url, api_key="sk-wrong") as client, pytest.raises(Exception, match="401"):
        client.realtime.connect(model="talks").enter()


@pytest.fixture
def over_tls(served: RunningGateway, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The gateway's address behind TLS, without which the Node client connects to none; and the authority's file."""
    files = CertificateFiles(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    port = urlsplit(served.base_url).port

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, inner_writer), pipe(inner_reader, writer))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    start = asyncio.start_server(serve, "localhost", 0, family=socket.AF_INET, ssl=context)
    server = asyncio.run_coroutine_threadsafe(start, loop).result(10)
    yield f"https://localhost:{server.sockets[0].getsockname()[1]}/v1", files.client_ca

    async def end() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(end(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.mark.parametrize("transport", ["ws", "websocket"])
def test_node_client_talks(
    served: RunningGateway, node_folder: Path, over_tls: tuple[str, Path], transport: str
) -> None:
    """By the package `ws` with headers, and as a browser does, with the key as a subprotocol."""
    address, authority = over_tls
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": address,
        "OPENAI_API_KEY": served.api_key,
        "NODE_EXTRA_CA_CERTS": str(authority),
    }
    done = subprocess.run(
        ["node", "realtime.mjs", transport],
        cwd=node_folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"said": "grey herons", "status": "completed", "model": "talks"}
