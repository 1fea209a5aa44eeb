"""Settings of plugins, and of one hook without the options that its plugin declares."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class PluginSettings(Struct, frozen=True, kw_only=True):
    """[plugins]: which installed plugins may run; they run with the gateway's own rights."""

    disabled: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


class HookSettings(Struct, frozen=True, kw_only=True):
    """[hooks.NAME]: which plugin's hook it is, its limits, and the options that the hook declares."""

    plugin: Annotated[str, Meta(min_length=1)]
    timeout: Annotated[float, Meta(ge=0.001, le=60)] = 1.0  # seconds of one run
    on_failure: Literal["closed", "open"] = "closed"  # what becomes of a call when the hook fails
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 100  # runs at once in each worker
    streams: Literal["sentences", "skip"] = "sentences"  # whether it checks streamed answers
    stream_delay: Annotated[float, Meta(ge=0.01, le=10)] = 0.5  # seconds that text waits for the end of its sentence
    stream_length: Annotated[int, Meta(ge=16, le=100_000)] = 2000  # characters, the same
    options: dict[str, Any] = {}
