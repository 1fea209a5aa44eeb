"""The handshake of `GET /v1/realtime` as a request: it names a model and nothing else."""

from __future__ import annotations

from gateway.schemas.request_fields import Core, RequestFields


class RealtimeRequest(RequestFields):
    """A session that a client asks for."""

    model: Core[str] = ""
    #: Of the conversation so far, estimated.
    text_tokens: int = 0
    audio_tokens: int = 0
