"""What a realtime session uses: the conversation, of which the next prompt is made, and the responses of one call.

`Conversation` lives as long as its socket: it estimates the next prompt, and it has the bounds within which an
upstream's counts are believed. `RealtimeMeter` counts the responses of one call; it is the call's encoder, so holds and
checkpoints use what it has delivered. Sharp edge: an upstream may begin a response that nobody asked for, and several
at a time; each is counted.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import UNSET, Raw, Struct, structs

from gateway.billing.delivered import AUDIO_PER_SECOND, Delivered
from gateway.billing.realtime_usage import IMAGE_TOKENS, INPUT_PER_SECOND, of_seconds, response_usage, sum_of
from gateway.billing.realtime_usage import transcript_usage as read_transcript_usage
from gateway.billing.usage import Usage, text_units, tokens_of
from gateway.billing.usage_bounds import NOTHING, Bounds, bound_usage
from gateway.catalog import Model
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.realtime.client_events import ClientEvent
from gateway.schemas.realtime.server_events import AudioFormats, Response, Transcribed

MAX_OPEN: Final = 16  # responses of a session at a time
REMEMBERED: Final = 64  # ids of ended responses, of which none is charged twice
USUAL_LIMIT: Final = 32_768  # tokens of output of a model whose limit is not known
FAILED: Final = "failed"


def units_of(delta: Raw) -> int:
    """The quarter tokens of a delta of text, a JSON string."""
    text = bytes(delta)[1:-1]
    return len(text) if text.isascii() else text_units(text.decode("utf-8", "replace"))


class Conversation:
    """The input and the output of one session so far; all of it is estimated, except what an upstream has counted."""

    __slots__ = (
        "_audio", "_audio_ms", "_factor", "_limit", "_media", "_sent", "_text", "_units", "_window", "ended", "formats",
        "untranscribed_ms",
    )  # fmt: skip

    def __init__(self, model: Model) -> None:
        self.formats = AudioFormats()
        self.ended: deque[str] = deque(maxlen=REMEMBERED)
        self.untranscribed_ms = 0.0  # of audio that was sent since the last transcript
        self._factor = model.token_factor
        self._window = model.context_window
        self._limit = model.max_output_tokens or USUAL_LIMIT
        self._text = self._audio = 0  # tokens of the conversation up to the last response
        self._units = 0  # quarter tokens of text since then
        self._audio_ms = 0.0  # of audio since then
        self._sent = 0  # bytes of text of the whole session, in both directions
        self._media = 0.0  # tokens of audio and images of the whole session, in both directions

    def add_input(self, event: ClientEvent) -> None:
        """An event of the client is passed on."""
        if event.audio:
            milliseconds = event.audio / self.formats.input
            self._audio_ms += milliseconds
            self.untranscribed_ms += milliseconds
            self._media += milliseconds * INPUT_PER_SECOND / 1000
        if event.text or event.images:
            self._sent += event.text
            self._units += event.text + event.images * IMAGE_TOKENS * 4
            self._media += event.images * IMAGE_TOKENS

    def add_output(self, units: int, audio_ms: float) -> None:
        """A part of a response is passed on; it is in later prompts."""
        self._sent += units
        self._units += units
        self._audio_ms += audio_ms * AUDIO_PER_SECOND / INPUT_PER_SECOND
        self._media += audio_ms * AUDIO_PER_SECOND / 1000

    def tokens(self) -> tuple[int, int]:
        """The estimated tokens of text and of audio in the next prompt."""
        text = self._text + tokens_of(self._units, factor=self._factor)
        audio = self._audio + int(self._audio_ms * INPUT_PER_SECOND / 1000)
        if self._window is not None and text + audio > self._window:
            audio = min(audio, self._window)
            text = self._window - audio
        return text, audio

    def prompt(self) -> Usage:
        """The estimate of the next prompt."""
        text, audio = self.tokens()
        return Usage(in_text=text, in_audio=audio, estimated=True)

    def bounds(self, delivered: int) -> Bounds:
        """What is believed of a response that has delivered so many tokens."""
        return Bounds(self._sent, int(self._media), max(self._limit, delivered))

    def counted(self, usage: Usage) -> None:
        """An upstream has counted a response of the conversation: the next prompt is that, and what follows."""
        self._audio = usage.in_audio + usage.in_audio_cached + usage.out_audio
        self._text = usage.tokens_in + usage.tokens_out - self._audio
        self._units, self._audio_ms = 0, 0.0


class _Running(Struct):
    """A response that has not ended."""

    prompt: Usage
    units: int = 0  # quarter tokens of text
    audio_ms: float = 0.0

    def usage(self, factor: float) -> Usage:
        return structs.replace(
            self.prompt,
            out_text=tokens_of(self.units, factor=factor),
            out_audio=int(self.audio_ms * AUDIO_PER_SECOND / 1000),
        )


class RealtimeMeter:
    """The responses of one call, and the transcripts meanwhile."""

    __slots__ = (
        "_audio_ms", "_conversation", "_done", "_factor", "_faults", "_is_by_second", "_prompt", "_running",
        "delivered",
    )  # fmt: skip

    def __init__(self, conversation: Conversation, model: Model) -> None:
        self.delivered = Delivered()
        self._conversation = conversation
        self._audio_ms = 0.0  # delivered in the call
        self._factor = model.token_factor
        self._is_by_second = bool(model.price.per_second_in)
        self._done: Usage | None = None  # what ended responses and transcripts have used
        self._prompt: Usage | None = None  # the estimated prompts of all responses
        self._running: dict[str, _Running] = {}
        self._faults: list[str] = []

    @property
    def running(self) -> int:
        """How many responses have begun and have not ended."""
        return len(self._running)

    @property
    def only_id(self) -> str:
        """The id of the response that runs, if it is the only one; else empty."""
        return next(iter(self._running)) if len(self._running) == 1 else ""

    @property
    def content_started(self) -> bool:
        """Whether any content was delivered."""
        return self.delivered.text_quarter_tokens > 0

    @property
    def fault(self) -> str:
        """What was wrong with the upstream's counts; empty if nothing was."""
        return ", ".join(dict.fromkeys(self._faults))

    def prompts(self) -> Usage:
        """The estimated prompts of all responses of the call."""
        return self._prompt or self._conversation.prompt()

    def begin(self, response_id: str) -> bool:
        """A response begins; False if it has begun already. UpstreamInvalidResponse if it has ended, or has no id."""
        if response_id in self._running:
            return False
        if not response_id or response_id in self._conversation.ended:
            raise UpstreamInvalidResponse(detail="a response without an id of its own")
        if len(self._running) >= MAX_OPEN:
            raise UpstreamInvalidResponse(detail=f"more than {MAX_OPEN} responses at a time")
        prompt = self._conversation.prompt()
        self._running[response_id] = _Running(prompt)
        self._prompt = prompt if self._prompt is None else sum_of(self._prompt, prompt)
        return True

    def is_begun(self, response_id: str) -> bool:
        """Whether parts of the response are counted."""
        return response_id in self._running

    def add(self, response_id: str, *, units: int = 0, audio_ms: float = 0.0) -> None:
        """A part of a response that has begun: quarter tokens of text, or audio."""
        running = self._running[response_id]
        running.units += units
        running.audio_ms += audio_ms
        self._conversation.add_output(units, audio_ms)
        if units:
            self.delivered.text_quarter_tokens += units
        if audio_ms:
            self._audio_ms += audio_ms  # a float: parts of a few samples would vanish in whole milliseconds
            self.delivered.add_media(audio_ms=int(self._audio_ms) - self.delivered.audio_ms)

    def end(self, response: Response) -> None:
        """A response has ended; it is charged once."""
        if response.id in self._conversation.ended:
            return
        running = self._running.pop(response.id, None) or _Running(self._conversation.prompt())
        self._conversation.ended.append(response.id)
        ours = running.usage(self._factor)
        reported = response_usage(response.usage)
        if response.status == FAILED and not (running.units or running.audio_ms):
            return  # nothing was delivered
        if reported is None:
            used = ours
        else:
            counted = bound_usage(reported, self._conversation.bounds(ours.tokens_out), ours)
            used = counted.usage
            if counted.fault:
                self._faults.append(counted.fault)
            if response.conversation_id is UNSET or isinstance(response.conversation_id, str):
                self._conversation.counted(used)
        self._add(used)

    def transcribed(self, transcript: Transcribed) -> None:
        """The upstream has transcribed what the client said."""
        conversation, text = self._conversation, len(transcript.transcript.encode("utf-8", "replace"))
        seconds, conversation.untranscribed_ms = conversation.untranscribed_ms / 1000, 0.0
        reported = read_transcript_usage(transcript.usage, by_second=self._is_by_second)
        if reported is None:
            heard = of_seconds(seconds, by_second=self._is_by_second)
            self._add(structs.replace(heard, out_text=tokens_of(text, factor=self._factor), estimated=True))
            return
        if reported.audio_seconds_in > seconds + 1:
            self._faults.append("more seconds than were sent")
            reported = structs.replace(reported, audio_seconds_in=seconds, estimated=True)
        counted = bound_usage(reported, Bounds(0, int(seconds * INPUT_PER_SECOND), text), NOTHING)
        if counted.fault:
            self._faults.append(counted.fault)
        self._add(counted.usage)

    def usage(self) -> Usage | None:
        """What the call has used so far; None while nothing is charged."""
        used = self._done
        for running in self._running.values():
            if running.units or running.audio_ms:  # without content a response that is cut costs nothing
                ours = running.usage(self._factor)
                used = ours if used is None else sum_of(used, ours)
        return used

    def _add(self, usage: Usage) -> None:
        self._done = usage if self._done is None else sum_of(self._done, usage)
