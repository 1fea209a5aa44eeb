"""Settings of plugins, and of one provider or hook without the options that its plugin declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.amounts import NANO
from gateway.config.model_patterns import Glob
from gateway.config.proxy import ProxySetting
from gateway.config.secret_headers import is_credential_header
from gateway.config.toml_reader import FromTables, Key, TomlReader
from gateway.config.values import Interval, PartFactor, interval

#: They belong to one connection or one body, name the client to a proxy, or have a meaning for the gateway itself.
_RESERVED = re.compile(
    r"accept(-.*)?|connection|content-.*|date|expect|forwarded|host|idempotency-key|keep-alive|origin|range|referer|te|"
    r"trailers?|transfer-encoding|upgrade(-.*)?|user-agent|via|proxy-.*|sec-.*|x-forwarded-.*|x-real-ip|x-gateway-.*|"
    r"traceparent|tracestate|openai-.*|anthropic-.*",
    re.IGNORECASE,
)


def _proxy(reader: TomlReader, value: object, key: Key) -> ProxySetting:
    return ProxySetting.parse(value, literals=reader.literals, folder=reader.folder)


ProxyOption = Annotated[ProxySetting, FromTables(_proxy, lambda _: {"type": "string"}, is_reference=True)]


#: A header of callers; `forwarding_refusal` has the names that are never forwarded.
HeaderName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$(?!\n)")]


class ProviderSettings(Struct, frozen=True, kw_only=True):
    """[providers.NAME]: which plugin's provider serves it, its proxy, and the options that provider declares."""

    plugin: Annotated[str, Meta(min_length=1)]
    proxy: ProxyOption | None = None
    forward_headers: Annotated[tuple[HeaderName, ...], Meta(max_length=16)] = ()  # of callers, to its upstream
    fetch_media: bool = False  # what requests name by address is fetched for it
    discover: bool = False  # whether its own list of models is served, too
    discover_every: Interval = "10m"
    discover_keep: Interval = "24h"  # how long the last good list is used
    discover_include: tuple[Glob, ...] = ()  # empty: every model
    discover_exclude: tuple[Glob, ...] = ()
    discover_most: Annotated[int, Meta(ge=1, le=20_000)] = 2000
    discover_max_change: Annotated[float, Meta(ge=1, le=1_000_000)] = 10.0  # of a price in its list
    credentials: tuple[dict[str, Any], ...] = ()  # each replaces options of the same names: one instance apiece
    options: dict[str, Any] = {}

    @property
    def instances(self) -> int:
        """How many instances of the provider serve, one per credential."""
        return max(1, len(self.credentials))

    @property
    def asks_every(self) -> float:
        """Seconds between two questions for its list of models."""
        return interval(self.discover_every)

    @property
    def keeps_list(self) -> float:
        """Seconds for which the last good list is used."""
        return interval(self.discover_keep)


def forwarding_refusal(name: str) -> str:
    """Why a header is never forwarded by its name alone; empty for one that may be."""
    if is_credential_header(name):
        return f"{name} carries a credential of the caller, which no upstream gets"
    if _RESERVED.fullmatch(name):
        return f"{name} is the gateway's own, or is forwarded already where it belongs"
    return ""


def forwarded_names(providers: Mapping[str, ProviderSettings]) -> tuple[str, ...]:
    """The headers that any provider forwards, in lower case, sorted."""
    return tuple(sorted({name.lower() for provider in providers.values() for name in provider.forward_headers}))


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
    price_factor: PartFactor = NANO  # of the price, for an answer that it gives in place of a provider
    options: dict[str, Any] = {}


#: Every other key in the table of a provider, or of a hook, belongs to its plugin.
OWN_PROVIDER_KEYS = frozenset(ProviderSettings.__struct_fields__) - {"options"}
OWN_HOOK_KEYS = frozenset(HookSettings.__struct_fields__) - {"options"}
