"""Realtime sessions that are made up: the last thing the user said comes back, word by word, as text or with a tone.

A response is made while the gateway reads it, so nothing is buffered. With turn detection, which is on as at OpenAI, a
chunk of silence after a chunk of sound ends what the user says, and a response begins that nobody asked for.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from gateway import RealtimeSession
from gateway.errors import UpstreamTruncated

from .script import Script

MS_PER_WORD: Final = 200
BYTES_PER_MS: Final = {"audio/pcm": 48, "audio/pcmu": 8, "audio/pcma": 8}
INPUT_PER_SECOND, OUTPUT_PER_SECOND = 10, 20  # tokens of audio
FORMAT: Final = {"type": "audio/pcm", "rate": 24000}
VAD: Final = {"type": "server_vad", "create_response": True, "interrupt_response": True}

_encode = msgspec.json.Encoder().encode


class FakeSession(RealtimeSession):
    """One conversation."""

    def __init__(self, model: str, script: Script) -> None:
        self._model = model
        self._script = script
        self._events: deque[dict[str, Any]] = deque()  # that wait for `receive`
        self._response: Iterator[dict[str, Any]] | None = None  # the rest of the running one
        self._asked: deque[dict[str, Any]] = deque()  # responses that wait for it
        self._changed = asyncio.Event()
        self._closed = False
        self._number = 0
        self._said = "Hello"
        self._text = 0  # tokens of the conversation
        self._audio = 0
        self._buffer_ms = 0  # of audio that is not committed
        self._has_sound = False
        self._sent = 0  # deltas
        self._output = [0, 0]  # tokens of text and audio of the running response
        self._session: dict[str, Any] = {
            "type": "realtime",
            "object": "realtime.session",
            "id": "sess_fake",
            "model": model,
            "output_modalities": ["audio"],
            "instructions": "",
            "tools": [],
            "audio": {
                "input": {"format": FORMAT, "turn_detection": VAD, "transcription": None},
                "output": {"format": FORMAT, "voice": "tone"},
            },
        }
        self._say("session.created", session=self._session)

    async def send(self, event: bytes) -> None:
        if self._closed:
            raise UpstreamTruncated()
        found: dict[str, Any] = msgspec.json.decode(event)
        self._taken(found)
        self._changed.set()

    async def receive(self) -> bytes:
        while True:
            if self._closed:
                raise UpstreamTruncated()
            if self._events:
                return _encode(self._events.popleft())
            if self._response is None and self._asked:
                await self._script.wait()
                self._response = self._respond(self._asked.popleft())
            if self._response is not None:
                await self._pace()
                made = next(self._response, None) if self._response is not None else None
                if made is not None:
                    self._events.append(made)
                else:
                    self._response = None
                continue
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    async def _pace(self) -> None:
        """Wait, fail or fall silent as the script says; it counts the deltas."""
        script = self._script
        if self._sent == script.fail_after:
            raise script.failure()
        if self._sent == script.silent_after:
            await asyncio.Event().wait()
        await asyncio.sleep(script.interval)

    # Events of the client -------------------------------------------------------------------------------------------

    def _taken(self, event: dict[str, Any]) -> None:
        handle = _HANDLERS.get(event.get("type", ""))
        if handle is None:
            self._error(event, "Unknown event type")
            return
        try:
            handle(self, event)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._error(event, "Invalid event")

    def _update(self, event: dict[str, Any]) -> None:
        asked = event.get("session") or {}
        audio = {side: {**self._session["audio"][side], **(asked.get("audio") or {}).get(side, {})} for side in SIDES}
        self._session = {**self._session, **asked, "audio": audio}
        self._text += len(str(asked.get("instructions", "")).split())
        self._say("session.updated", session=self._session)

    def _append(self, event: dict[str, Any]) -> None:
        try:
            audio = base64.b64decode(event.get("audio", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            self._error(event, "Invalid audio")
            return
        self._buffer_ms += len(audio) // self._bytes_per_ms("input")
        is_sound = bool(audio.strip(b"\0"))
        detection = self._session["audio"]["input"].get("turn_detection")
        if is_sound and not self._has_sound and detection:
            self._say("input_audio_buffer.speech_started", audio_start_ms=0, item_id=self._id("item"))
        elif not is_sound and self._has_sound and detection:
            self._say("input_audio_buffer.speech_stopped", audio_end_ms=self._buffer_ms, item_id=self._id("item"))
            self._commit(event)
            if detection.get("create_response", True):
                self._asked.append({})
            return
        self._has_sound = self._has_sound or is_sound

    def _commit(self, event: dict[str, Any]) -> None:
        item, seconds = self._id("item"), self._buffer_ms / 1000
        self._audio += int(seconds * INPUT_PER_SECOND)
        self._said = f"I heard {self._buffer_ms} ms"
        self._buffer_ms, self._has_sound = 0, False
        self._say("input_audio_buffer.committed", item_id=item, previous_item_id=None)
        content = [{"type": "input_audio", "transcript": None}]
        self._added({"id": item, "type": "message", "role": "user", "status": "completed", "content": content})
        if self._session["audio"]["input"].get("transcription"):
            self._say(
                "conversation.item.input_audio_transcription.completed",
                item_id=item,
                content_index=0,
                transcript=self._said,
                usage={"type": "duration", "seconds": seconds},
            )

    def _clear(self, event: dict[str, Any]) -> None:
        self._buffer_ms, self._has_sound = 0, False
        self._say("input_audio_buffer.cleared")

    def _create_item(self, event: dict[str, Any]) -> None:
        item = event.get("item") or {}
        texts = [part.get("text", "") for part in item.get("content") or () if isinstance(part, dict)]
        said = " ".join(text for text in texts if text) or str(item.get("output", ""))
        self._said = said or self._said
        self._text += len(said.split())
        self._added({"id": self._id("item"), "object": "realtime.item", "status": "completed", **item})

    def _added(self, item: dict[str, Any]) -> None:
        self._say("conversation.item.added", previous_item_id=None, item=item)
        self._say("conversation.item.done", previous_item_id=None, item=item)

    def _create_response(self, event: dict[str, Any]) -> None:
        self._asked.append(event.get("response") or {})

    def _cancel(self, event: dict[str, Any]) -> None:
        if self._response is None:
            self._error(event, "Cancellation failed: no active response found")
        else:
            self._response = iter([self._done("cancelled", [])])

    def _ignore(self, event: dict[str, Any]) -> None:
        """It changes nothing here."""

    def _error(self, event: dict[str, Any], message: str) -> None:
        error = {"type": "invalid_request_error", "code": "invalid_value", "message": message, "param": None}
        self._say("error", error={**error, "event_id": event.get("event_id")})

    # A response -----------------------------------------------------------------------------------------------------

    def _respond(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a response."""
        self._response_id, item_id = self._id("resp"), self._id("item")
        self._output = [0, 0]
        places = {"response_id": self._response_id, "item_id": item_id, "output_index": 0, "content_index": 0}
        is_audio = "audio" in (asked.get("output_modalities") or self._session["output_modalities"])
        item: dict[str, Any] = {"id": item_id, "object": "realtime.item", "type": "message", "role": "assistant"}
        part: dict[str, Any] = {"type": "audio", "transcript": ""} if is_audio else {"type": "text", "text": ""}
        yield self._made("response.created", response=self._document("in_progress", []))
        started = {**item, "status": "in_progress", "content": []}
        yield self._made("response.output_item.added", response_id=self._response_id, output_index=0, item=started)
        yield self._made("response.content_part.added", **places, part=part)
        kind = "response.output_audio_transcript" if is_audio else "response.output_text"
        said = ""
        for word in self._words():
            said += word
            self._output[0] += 1
            self._sent += 1
            yield self._made(f"{kind}.delta", **places, delta=word)
            if is_audio:
                self._output[1] += OUTPUT_PER_SECOND * MS_PER_WORD // 1000
                tone = base64.b64encode(b"\x10\x20" * (self._bytes_per_ms("output") * MS_PER_WORD // 2)).decode()
                yield self._made("response.output_audio.delta", **places, delta=tone)
        name = "transcript" if is_audio else "text"
        yield self._made(f"{kind}.done", **places, **{name: said})
        if is_audio:
            yield self._made("response.output_audio.done", **places)
        yield self._made("response.content_part.done", **places, part={**part, name: said})
        whole = {**item, "status": "completed", "content": [{**part, "type": f"output_{part['type']}", name: said}]}
        yield self._made("response.output_item.done", response_id=self._response_id, output_index=0, item=whole)
        yield self._done("completed", [whole])

    def _words(self) -> Iterator[str]:
        words = (self._script.text or self._said).split()
        while True:
            for index, word in enumerate(words):
                yield word if not index else f" {word}"
            if not self._script.endless:
                return

    def _done(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        made = self._made("response.done", response=self._document(status, output))
        self._text += self._output[0]
        self._audio += self._output[1]
        return made

    def _document(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        usage = None if status == "in_progress" else self._usage()
        return {
            "object": "realtime.response",
            "id": self._response_id,
            "status": status,
            "status_details": None,
            "output": output,
            "conversation_id": "conv_fake",
            "output_modalities": self._session["output_modalities"],
            "max_output_tokens": "inf",
            "audio": {"output": self._session["audio"]["output"]},
            "usage": usage,
            "metadata": None,
        }

    def _usage(self) -> dict[str, Any] | None:
        if self._script.usage == "none":
            return None
        text, audio = self._output
        given = self._text + self._audio
        wrong = self._script.wrong
        counted_in, counted_out = wrong(given), wrong(text + audio)
        return {
            "total_tokens": given + text + audio,
            "input_tokens": given if counted_in is None else counted_in,
            "output_tokens": text + audio if counted_out is None else counted_out,
            "input_token_details": {
                "text_tokens": self._text,
                "audio_tokens": self._audio,
                "image_tokens": 0,
                "cached_tokens": 0,
                "cached_tokens_details": {"text_tokens": 0, "audio_tokens": 0, "image_tokens": 0},
            },
            "output_token_details": {"text_tokens": text, "audio_tokens": audio},
        }

    # The events ------------------------------------------------------------------------------------------------------

    def _bytes_per_ms(self, side: str) -> int:
        kind = (self._session["audio"][side].get("format") or FORMAT).get("type")
        return BYTES_PER_MS.get(str(kind), BYTES_PER_MS["audio/pcm"])

    def _say(self, kind: str, **fields: Any) -> None:
        self._events.append(self._made(kind, **fields))

    def _made(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "event_id": self._id("event"), **fields}

    def _id(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}_{self._number:06d}"


SIDES: Final = ("input", "output")
_HANDLERS: Final[dict[str, Callable[[FakeSession, dict[str, Any]], None]]] = {
    "session.update": FakeSession._update,
    "input_audio_buffer.append": FakeSession._append,
    "input_audio_buffer.commit": FakeSession._commit,
    "input_audio_buffer.clear": FakeSession._clear,
    "output_audio_buffer.clear": FakeSession._ignore,
    "conversation.item.create": FakeSession._create_item,
    "conversation.item.retrieve": FakeSession._ignore,
    "conversation.item.delete": FakeSession._ignore,
    "conversation.item.truncate": FakeSession._ignore,
    "response.create": FakeSession._create_response,
    "response.cancel": FakeSession._cancel,
}
