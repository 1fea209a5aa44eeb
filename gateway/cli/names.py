"""Names of models and groups, checked against the configuration of this machine, or left to the server of a command."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gateway.admin import model_names
from gateway.cli.server_option import current_server
from gateway.config.settings import Settings


def known_models(settings: Settings, names: Iterable[str], *, also: Collection[str] = ()) -> list[str]:
    """`model_names.known_models`."""
    return list(names) if current_server() is not None else model_names.known_models(settings, names, also=also)


def known_group(settings: Settings, group: str) -> None:
    """`model_names.known_group`."""
    if current_server() is None:
        model_names.known_group(settings, group)
