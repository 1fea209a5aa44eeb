"""The soak's load: every endpoint, whole answers and streams, callers who leave, an upstream that fails.

Every call knows the units it has to be charged (`PER_TOKEN` nano each): what `Truth` saw the upstream deliver. The
upstream's log is folded into sums as it grows, so that half an hour of it fits into memory.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter, defaultdict
from typing import Any

import aiohttp
from msgspec import structs

from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import AUDIO, openai_dialect
from gateway.testing.reply import Seen
from tests.chaos.traffic import CHUNK
from tests.processes.served import Served

FAILING = 0.05  # of all requests, at the upstream
LEAVING = 0.30  # of chats and speeches, which are a third of all calls: a tenth of all
LEAVERS = ("chat", "speech")
INTERVAL = 0.02  # seconds between chunks
PAUSE = 0.05  # seconds between a caller's calls
PROMPT = "so many words in one prompt"
SPEECH = "Read this aloud."
MODELS = """
[providers.up]
plugin = "openai"
base_url = "{url}"

[models.chat]
provider = "up"
price = {{ input = 0, output = 1 }}
default_reserve_output = 500

[models.embeddings]
provider = "up"
endpoints = ["embeddings"]
price = {{ input = 1 }}

[models.images]
provider = "up"
endpoints = ["images"]
price = {{ input = 0, output = 1 }}

[models.speech]
provider = "up"
endpoints = ["speech"]
price = {{ per_character = 1 }}

[models.transcription]
provider = "up"
endpoints = ["transcription"]
price = {{ per_second_in = 0.000001 }}

[groups.default]
rpm = {rpm}
"""
#: What a whole answer costs, in units: words, tokens of an image, characters, seconds.
UNITS = {"embeddings": len(PROMPT.split()), "images": 100, "speech": len(SPEECH), "transcriptions": 3}


class Call:
    """One call, and what its caller may be charged at most and at least."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = "call-" + secrets.token_hex(8)
        self.leaves_after = random.randint(0, 8) if kind in LEAVERS and random.random() < LEAVING else -1  # chunks
        self.left = False
        self.got = 0  # chunks that a caller who left had read
        self.status = 0
        self.request_id = ""


class Truth:
    """What the upstream delivered to each call, and how it misbehaves on the way."""

    def __init__(self, upstream: FakeUpstream) -> None:
        self._upstream = upstream
        self._failed: set[int] = set()  # requests answered with a failure, by the id of their record
        self._units: dict[str, int] = defaultdict(int)
        self.failures: Counter[str] = Counter()
        upstream.answer = self._answer

    def _answer(self, seen: Seen) -> Reply:
        reply = openai_dialect(seen)
        if reply.frames is not None:
            reply = structs.replace(reply, interval=INTERVAL)
        if random.random() >= FAILING:
            return reply
        kind, failure = _failure(reply)
        self.failures[kind] += 1
        if kind != "cut":
            self._failed.add(id(seen))
        return failure

    def fold(self) -> None:
        """Add up the requests that have ended, and forget them."""
        open_ones = []
        for seen in self._upstream.seen:
            if seen.outcome == "open":
                open_ones.append(seen)
                continue
            if seen.path.endswith("/chat/completions") and id(seen) not in self._failed:
                self._units[seen.json["user"]] += _chunks(seen)
            self._failed.discard(id(seen))
        self._upstream.seen[:] = open_ones

    def units(self, call: Call) -> int:
        """What it should cost."""
        if call.kind == "chat":
            return self._units.get(call.name, 0)
        return UNITS[call.kind] if call.status == 200 else 0


def _failure(reply: Reply) -> tuple[str, Reply]:
    kind = random.choice(["500", "503", "hung up", "400", "cut"])
    if kind == "cut" and reply.frames is not None and b"chat.completion" in reply.frames[0]:
        return kind, structs.replace(reply, frames=reply.frames[: random.randint(2, 6)], end="cut")
    if kind in ("hung up", "cut"):
        return "hung up", Reply.hang_up()
    return kind, Reply.error(int(kind), "no luck today")


def _chunks(seen: Seen) -> int:
    words = len(seen.json["messages"][-1]["content"].split())
    if not seen.json.get("stream"):
        return words if seen.outcome == "answered" else 0
    return min(max(seen.frames - 1, 0), words)  # the first frame has the role


class Mixture:
    """Callers of every kind, until `ended`."""

    def __init__(self, gateway: Served, session: aiohttp.ClientSession) -> None:
        self.calls: list[Call] = []
        self.faults: Counter[str] = Counter()  # answers that nobody should get
        self._gateway = gateway
        self._session = session
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, callers: dict[str, int]) -> None:
        """So many callers of each kind, each calling again a moment after it was answered."""
        for kind, count in callers.items():
            self._tasks += [asyncio.create_task(self._calling(kind)) for _ in range(count)]

    async def ended(self) -> None:
        """No more calls, and those that run are over."""
        self._over = True
        await asyncio.gather(*self._tasks)

    async def _calling(self, kind: str) -> None:
        while not self._over:
            call = Call(kind)
            self.calls.append(call)
            try:
                await self._make(call)
            except (aiohttp.ClientError, OSError) as error:
                if call.status != 200:  # an answer that began may be cut, as its upstream's was
                    self.faults[f"{kind}: {type(error).__name__}"] += 1
            await asyncio.sleep(PAUSE)

    async def _make(self, call: Call) -> None:
        path, body = self._request(call)
        headers = {"Authorization": f"Bearer {self._gateway.api_key}"}
        async with self._session.post(f"{self._gateway.base_url}{path}", headers=headers, **body) as response:
            call.status = response.status
            call.request_id = response.headers.get("x-request-id", "")
            if call.leaves_after >= 0 and response.status == 200:
                await self._leave(call, response)
            else:
                await response.read()

    async def _leave(self, call: Call, response: aiohttp.ClientResponse) -> None:
        """Read a few chunks, or the first piece of sound, and hang up."""
        read = b""
        while (read.count(CHUNK.encode()) < call.leaves_after) if call.kind == "chat" else not read:
            piece = await response.content.readany()
            if not piece:
                return
            read += piece
            call.got = read.count(CHUNK.encode()) if call.kind == "chat" else 0
        call.left = True
        response.close()

    def _request(self, call: Call) -> tuple[str, dict[str, Any]]:
        match call.kind:
            case "chat":
                stream = call.leaves_after >= 0 or random.random() < 0.5
                messages = [{"role": "user", "content": CHUNK * random.randint(10, 40)}]
                body = {"model": "chat", "user": call.name, "messages": messages, "stream": stream}
                return "/chat/completions", {"json": body}
            case "embeddings":
                return "/embeddings", {"json": {"model": "embeddings", "input": PROMPT}}
            case "images":
                return "/images/generations", {"json": {"model": "images", "prompt": PROMPT}}
            case "speech":
                body = {"model": "speech", "voice": "alloy", "input": SPEECH}
                return "/audio/speech", {"json": body}
        form = aiohttp.FormData({"model": "transcription"})
        form.add_field("file", AUDIO["wav"], filename="second.wav", content_type="audio/wav")
        return "/audio/transcriptions", {"data": form}
