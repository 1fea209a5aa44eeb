"""OpenAI's dialect on a socket: a realtime session that repeats the last text of its user."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

AUDIO = base64.b64encode(bytes(4800)).decode()  # 100 ms
TOKENS_OF_AUDIO = 2

_encode = msgspec.json.Encoder().encode


async def openai_realtime(socket: web.WebSocketResponse, path: str) -> None:
    """Serve one session until its client leaves; `path` has the query, which names the model."""
    session: dict[str, Any] = {"id": "sess_1", "object": "realtime.session", "type": "realtime", "model": "upstream"}
    await _say(socket, "session.created", session=session)
    said, texts, responses = "Hello", 0, 0
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            return
        event = msgspec.json.decode(message.data)
        match event.get("type"):
            case "session.update":
                session |= event.get("session", {})
                await _say(socket, "session.updated", session=session)
            case "conversation.item.create":
                item = event.get("item", {})
                said = " ".join(part.get("text", "") for part in item.get("content", ())) or said
                texts += len(said.split())
                await _say(socket, "conversation.item.added", previous_item_id=None, item={"id": "item_1", **item})
            case "response.create":
                responses += 1
                texts += await _answer(socket, f"resp_{responses}", said, texts)


async def _answer(socket: web.WebSocketResponse, name: str, said: str, given: int) -> int:
    """Send the events of a response; the number of words."""
    words = said.split()
    await _say(
        socket, "response.created", response={"id": name, "object": "realtime.response", "status": "in_progress"}
    )
    places = {"response_id": name, "item_id": f"item_{name}", "output_index": 0, "content_index": 0}
    for index, word in enumerate(words):
        text = f" {word}" if index else word
        await _say(socket, "response.output_audio_transcript.delta", **places, delta=text)
        await _say(socket, "response.output_audio.delta", **places, delta=AUDIO)
    audio = TOKENS_OF_AUDIO * len(words)
    usage = {
        "total_tokens": given + len(words) + audio,
        "input_tokens": given,
        "output_tokens": len(words) + audio,
        "input_token_details": {"text_tokens": given, "audio_tokens": 0, "cached_tokens": 0},
        "output_token_details": {"text_tokens": len(words), "audio_tokens": audio},
    }
    response = {"id": name, "object": "realtime.response", "status": "completed", "output": [], "usage": usage}
    await _say(socket, "response.done", response=response)
    return len(words)


async def _say(socket: web.WebSocketResponse, kind: str, **fields: Any) -> None:
    await socket.send_str(_encode({"type": kind, "event_id": f"event_{kind}", **fields}).decode())
