"""Settings of one provider, without the options that its plugin declares."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.config.model_patterns import Glob
from gateway.config.proxy import ProxySetting
from gateway.config.toml_reader import FromTables, Key, TomlReader
from gateway.config.values import Interval, interval


def _proxy(reader: TomlReader, value: object, key: Key) -> ProxySetting:
    return ProxySetting.parse(value, literals=reader.literals, folder=reader.folder)


ProxyOption = Annotated[ProxySetting, FromTables(_proxy, lambda _: {"type": "string"}, is_reference=True)]


#: A header of callers; the names that may not be forwarded are in `gateway.config.forwarded_names`.
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
