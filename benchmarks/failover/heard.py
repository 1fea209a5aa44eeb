"""What a caller heard of one streamed call, read as a careful client reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import cycle

import aiohttp
import msgspec
from msgspec import Struct

from benchmarks.failover.provider import WHOLE

QUESTION = "Say in sixty words why a gateway is judged by its worst provider."
DONE = b"[DONE]"


class Heard(Struct, kw_only=True):
    """One call. A stream that ends without an error counts as an answer, whatever it lacks."""

    text: str = ""
    model: str = ""
    usage: bool = False
    error: str = ""  # the message of the error, or how the connection ended
    hung: bool = False  # it was still running when its time was over
    seconds: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether it is the whole answer and nothing else."""
        return not self.error and self.text.strip() == WHOLE

    @property
    def misleading(self) -> bool:
        """Whether it looks whole and is not: cut, doubled or changed."""
        return not self.error and not self.whole


class Caller:
    """Sends the same question to the models of one gateway."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        urls: Sequence[str],
        headers: Mapping[str, str],
        *,
        sampling: Mapping[str, object],
    ) -> None:
        self._session = session
        self._urls = cycle([f"{url}/chat/completions" for url in urls])
        self._headers = dict(headers)
        self._sampling = sampling

    async def call(self, model: str, *, within: float) -> Heard:
        """One streamed call, which is left after `within` seconds."""
        heard, started = Heard(), time.monotonic()
        try:
            async with asyncio.timeout(within):
                await self._read(model, heard)
        except TimeoutError:
            heard.hung, heard.error = True, "no end"
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
            heard.error = f"{type(error).__name__}: {error}"
        heard.seconds = time.monotonic() - started
        return heard

    async def _read(self, model: str, heard: Heard) -> None:
        document = {
            "model": model,
            "messages": [{"role": "user", "content": QUESTION}],
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._sampling,
        }
        async with self._session.post(next(self._urls), json=document, headers=self._headers) as response:
            if response.status != 200:
                heard.error = f"{response.status} {(await response.text())[:300]}"
                return
            async for line in response.content:
                data = line.removeprefix(b"data:").strip()
                if data == DONE:
                    return
                if line.startswith(b"data:"):
                    _take(heard, msgspec.json.decode(data))
                if heard.error:
                    return


def _take(heard: Heard, frame: dict[str, object]) -> None:
    if error := frame.get("error"):
        heard.error = str(error)[:300]
        return
    heard.model = str(frame.get("model") or heard.model)
    heard.usage = heard.usage or bool(frame.get("usage"))
    choices = msgspec.convert(frame.get("choices") or [], list[dict[str, object]])
    for choice in choices:
        delta = msgspec.convert(choice.get("delta") or {}, dict[str, object])
        heard.text += str(delta.get("content") or "")
