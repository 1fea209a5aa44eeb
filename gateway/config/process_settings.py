"""[plugins] and [log]: what every process of a gateway loads, and what it writes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class PluginSettings(Struct, frozen=True, kw_only=True):
    """[plugins]: which installed plugins may run; they run with the gateway's own rights."""

    disabled: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


class LogSettings(Struct, frozen=True, kw_only=True):
    """[log]: what is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    access: bool = True
    form: Literal["auto", "text", "json"] = "auto"
