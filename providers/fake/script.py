"""What a script may ask for on every endpoint: how long to wait, when to fail, and with which error."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from msgspec import Struct

from gateway import errors

Failure = Literal[
    "UpstreamError",
    "UpstreamUnreachable",
    "UpstreamRejected",
    "UpstreamAuthError",
    "UpstreamInvalidResponse",
    "UpstreamRateLimited",
    "UpstreamOverloaded",
    "UpstreamTimeout",
    "UpstreamTruncated",
    "RuntimeError",
]
UsageKind = Literal["right", "none", "zero", "large", "negative", "absurd", "text"]


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call to make, with the JSON text of its arguments."""

    name: str
    arguments: str = "{}"


class Script(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one model behaves."""

    text: str | None = None  # none: derived from the request
    reasoning: str = ""
    tool_calls: list[ScriptedCall] = []
    finish_reason: str = ""  # empty: what fits the answer
    latency: float = 0.0  # seconds before anything happens
    first_token: float = 0.0  # seconds more before the first chunk
    interval: float = 0.0  # seconds between chunks
    chunks: int = 0  # number of text chunks; 0: one for each word
    fail_after: int | None = None  # fail once so many chunks are out; 0: before the first
    error: Failure = "UpstreamError"
    endless: bool = False  # the text again and again
    silent_after: int | None = None  # say nothing more once so many chunks are out
    truncated: bool = False  # end without a finish reason
    usage: UsageKind = "right"
    early_usage: bool = False  # tell the prompt's count with the first chunk
    hidden_reasoning: int = 0  # tokens that are counted and never said
    custom_input: str = ""  # of a call of a custom tool
    audio_seconds: int = 0  # of silence, a chunk for each second
    images: int = 0  # in a chat answer

    async def wait(self) -> None:
        """The silence before the first byte."""
        if self.latency or self.first_token:
            await asyncio.sleep(self.latency + self.first_token)

    def wrong(self, count: float) -> Any:
        """What to tell in place of a count; None where the count itself is told."""
        wrong = {"zero": 0, "large": 999_000, "negative": -count, "absurd": 10**18, "text": "many"}
        return wrong.get(self.usage)

    def failure(self) -> Exception:
        """The error to fail with."""
        if self.error == "RuntimeError":
            return RuntimeError("the script says so")  # what a plugin with a bug raises
        failure: Exception = getattr(errors, self.error)()
        return failure
