"""A realtime upstream for measurements: `python -m benchmarks.realtime.upstream PORT`.

It answers each `response.create` with parts of audio, one each `EVERY` seconds, and reads everything else.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

from aiohttp import WSMsgType, web

EVERY = 0.2  # seconds
PARTS = 15  # of a response
AUDIO = base64.b64encode(bytes(4800)).decode()  # 100 ms
USAGE = {
    "input_tokens": 20,
    "output_tokens": 30,
    "input_token_details": {"text_tokens": 20, "audio_tokens": 0},
    "output_token_details": {"text_tokens": 0, "audio_tokens": 30},
}


async def serve(request: web.Request) -> web.WebSocketResponse:
    """One session."""
    socket = web.WebSocketResponse(max_msg_size=1 << 25)
    await socket.prepare(request)
    await say(socket, "session.created", session={"model": request.query.get("model", "")})
    answering: set[asyncio.Task[None]] = set()
    number = 0
    async for message in socket:
        if message.type is WSMsgType.TEXT and '"response.create"' in message.data[:60]:
            number += 1
            task = asyncio.create_task(answer(socket, f"resp_{number}"))
            answering.add(task)
            task.add_done_callback(answering.discard)
    for task in answering:
        task.cancel()
    return socket


async def answer(socket: web.WebSocketResponse, name: str) -> None:
    """The events of one response."""
    await say(socket, "response.created", response={"id": name, "status": "in_progress"})
    for _ in range(PARTS):
        await asyncio.sleep(EVERY)
        await say(socket, "response.output_audio.delta", response_id=name, item_id="item", delta=AUDIO)
    await say(socket, "response.done", response={"id": name, "status": "completed", "usage": USAGE})


async def say(socket: web.WebSocketResponse, kind: str, **fields: Any) -> None:
    """Send an event."""
    if not socket.closed:
        await socket.send_str(json.dumps({"type": kind, "event_id": "event", **fields}))


if __name__ == "__main__":
    app = web.Application()
    app.router.add_get("/v1/realtime", serve)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
