"""Tables of found providers for the end of a configuration file, tried on the file before they are offered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError, parse_toml, read_file
from gateway.setup.configuration_check import CheckOptions, check_settings
from gateway.setup.first_configuration import provider_text
from gateway.setup.found_providers import FoundProvider
from gateway.setup.offered_providers import Offer, offers


class Additions(Struct, frozen=True):
    """What to add to a file."""

    offers: list[Offer]
    text: str  # TOML for the end of the file; empty without offers
    faults: list[str]  # what `gateway check` would say of the file with the text, apart from secrets and the store


def additions(found: Sequence[FoundProvider], settings: Settings) -> Additions:
    """What is new to the file of these settings, as it is on the disk now. It blocks, and runs an event loop."""
    try:
        raw = read_file(Path(settings.file))
        on_disk = _parsed(raw, settings)
    except SettingsError as error:
        offered = offers(found, settings)
        return Additions(offered, provider_text(offered) if offered else "", [*map(str, error.problems)])
    offered = offers(found, on_disk)
    if not offered:
        return Additions([], "", [])
    text = provider_text(offered)
    return Additions(offered, text, _faults(raw + b"\n" + text.encode(), settings))


def _faults(raw: bytes, settings: Settings) -> list[str]:
    try:
        changed = _parsed(raw, settings)
    except SettingsError as error:
        return [*map(str, error.problems)]
    findings = asyncio.run(check_settings(changed, CheckOptions(offline=True), config=settings.file))
    return [*map(str, findings.faults)]


def _parsed(raw: bytes, settings: Settings) -> Settings:
    return parse(parse_toml(raw, file=settings.file), file=settings.file, demo=settings.demo)
