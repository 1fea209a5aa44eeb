"""Transcription by PocketSphinx, in English and without a vendor.

Configure it as any other::

    [providers.sphinx]
    plugin = "sphinx"
    processes = 1         # audio files heard at once
    queue = 16            # audio files that may wait for that, beyond which callers get a 503
    longest = 3600.0      # seconds of audio in a file

Sharp edges: it hears what it knows, American English read aloud; and a second of speech takes a third of a second of
one processor, so mind `timeouts.total`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gateway import (
    Provider,
    Segment,
    Target,
    Transcript,
    TranscriptEvent,
    Transcription,
    TranscriptionRequest,
    TranscriptUsage,
    Word,
    hookimpl,
)
from gateway.errors import UpstreamRejected
from gateway.plugins.engine_processes import Engine, Engines

from .frames import ENDS, Job, Kind, Refusal, Summary, Utterance

LANGUAGE = "english"
CODES = frozenset({"en", "eng"})


class SphinxProvider(Provider, Transcription):
    """Writes down English in a process of its own."""

    name = "sphinx"
    transcription_fields = frozenset({"language", "languages", "timestamp_granularities"})
    transcript_formats = frozenset({"json", "text", "srt", "vtt", "verbose_json"})

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [providers.NAME]."""

        processes: Annotated[int, Meta(ge=1, le=64)] = 1
        queue: Annotated[int, Meta(ge=0, le=10_000)] = 16
        longest: Annotated[float, Meta(gt=0, le=86_400)] = 3600.0

    async def start(self) -> None:
        """Start the engines; not being able to refuses to start."""
        options: SphinxProvider.Options = self.options
        self._engines = Engines("gateway_sphinx.worker", processes=options.processes, queue=options.queue, ends=ENDS)
        await self._engines.start()

    async def close(self) -> None:
        """End the engines."""
        await self._engines.close()

    async def transcribe(self, request: TranscriptionRequest, target: Target) -> Transcript:
        """The whole transcript."""
        async for event in self.stream_transcript(request, target):
            if event.done is not None:
                return event.done
        raise AssertionError("a stream ends with the whole")

    async def stream_transcript(self, request: TranscriptionRequest, target: Target) -> AsyncIterator[TranscriptEvent]:
        """Each utterance when it has been heard, and the whole last; leaving it ends the process that hears."""
        _check_language(request)
        heard: list[Utterance] = []
        deadline = asyncio.get_running_loop().time() + target.timeouts.total
        async with self._engines.acquire(within=target.timeouts.first_byte) as engine:
            await self._hand_over(engine, request)
            while True:
                kind, payload = await engine.receive(within=deadline - asyncio.get_running_loop().time())
                if kind != Kind.PIECE:
                    break
                utterance = msgspec.json.decode(payload, type=Utterance)
                yield TranscriptEvent(delta=f" {utterance.text}" if heard else utterance.text)
                heard.append(utterance)
        if kind == Kind.REFUSED:
            raise UpstreamRejected(msgspec.json.decode(payload, type=Refusal).message, param="file")
        yield TranscriptEvent(done=_transcript(heard, msgspec.json.decode(payload, type=Summary).duration))

    async def _hand_over(self, engine: Engine, request: TranscriptionRequest) -> None:
        """Send the file on piece by piece, so that none of it gathers here."""
        await engine.send(Kind.JOB, msgspec.json.encode(Job(self.options.longest)))
        async for piece in request.file.chunks():
            await engine.send(Kind.DATA, piece)
        await engine.send(Kind.END)


def _check_language(request: TranscriptionRequest) -> None:
    """UpstreamRejected for a wish that leaves no English."""
    wishes = {"language": [request.language] if request.language else [], "languages": request.languages}
    for param, named in wishes.items():
        if named and not any(name.replace("_", "-").partition("-")[0].lower() in CODES for name in named):
            raise UpstreamRejected("This model hears English only.", param=param)


def _transcript(heard: list[Utterance], seconds: float) -> Transcript:
    return Transcript(
        " ".join(utterance.text for utterance in heard),
        language=LANGUAGE,
        duration=seconds,
        segments=[Segment(utterance.start, utterance.end, utterance.text) for utterance in heard],
        words=[Word(spoken.word, spoken.start, spoken.end) for utterance in heard for spoken in utterance.words],
        usage=TranscriptUsage(seconds=seconds),
    )


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Tell the gateway about the provider."""
    register(SphinxProvider)
