"""Speech by eSpeak NG, in the languages it has and without a vendor.

Configure it as any other::

    [providers.espeak]
    plugin = "espeak"
    language = "en-us"    # what OpenAI's voices speak
    processes = 1         # texts said at once
    queue = 32            # texts that may wait for that, beyond which callers get a 503
    library = ""          # a libespeak-ng of the system's, such as "libespeak-ng.so.1"; otherwise the wheel's

Sharp edge: audio is made as fast as it is read, so a caller who reads slowly keeps a process to himself meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gateway import Provider, Speech, SpeechChunk, SpeechRequest, Target, hookimpl
from gateway.errors import UpstreamRejected
from gateway.plugins.engine_processes import Engines

from .frames import ENDS, Hello, Job, Kind
from .voices import Voices

USUAL_RATE = 175  # words a minute, eSpeak's own default
SLOWEST_RATE = 80  # below it eSpeak gets no slower; above 450 it does get faster


class EspeakProvider(Provider, Speech):
    """Says texts in a process of its own."""

    name = "espeak"
    speech_fields = frozenset({"speed"})
    speech_formats = frozenset({"mp3", "opus", "flac", "wav", "pcm"})

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [providers.NAME]."""

        language: str = "en-us"
        processes: Annotated[int, Meta(ge=1, le=64)] = 1
        queue: Annotated[int, Meta(ge=0, le=10_000)] = 32
        library: str = ""

    async def start(self) -> None:
        """Start the engines and learn their voices; a language that is none of theirs refuses to start."""
        options: EspeakProvider.Options = self.options
        self._engines = Engines(
            "gateway_espeak.worker", options.library, processes=options.processes, queue=options.queue, ends=ENDS
        )
        hello = msgspec.json.decode(await self._engines.start(), type=Hello)
        self._voices = Voices(hello, options.language)
        if self._voices.find("alloy") is None:
            await self._engines.close()
            raise ValueError(f"espeak: there is no language {options.language!r}")

    async def close(self) -> None:
        """End the engines."""
        await self._engines.close()

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """The audio as it is made; leaving it ends the process that makes it."""
        job, limits = msgspec.json.encode(self._job(request)), target.timeouts
        async with self._engines.acquire(within=limits.first_byte) as engine:
            await engine.send(Kind.JOB, job)
            _, piece = await engine.receive(within=limits.first_byte)
            while not engine.idle:
                yield SpeechChunk(piece)
                _, piece = await engine.receive(within=limits.idle)

    def _job(self, request: SpeechRequest) -> Job:
        voice = self._voices.find(request.voice_name)
        if voice is None:
            raise UpstreamRejected(f"There is no voice '{request.voice_name}'.", param="voice")
        rate = round(USUAL_RATE * (request.speed or 1.0))
        if rate < SLOWEST_RATE:
            slowest = SLOWEST_RATE / USUAL_RATE
            raise UpstreamRejected(f"This model speaks no slower than {slowest:.2f}.", param="speed")
        return Job(request.input, voice, rate, request.format)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Tell the gateway about the provider."""
    register(EspeakProvider)
