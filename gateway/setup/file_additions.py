"""Tables of found providers for the end of a configuration file, tried on the file before they are offered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, structs

from gateway.config.includes import read_parts
from gateway.config.loader import parse_files
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError, read_file
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
    except SettingsError as error:
        return _unreadable(found, settings, error)
    # Most often the file is the one of the settings. Then it is parsed once, with the tables.
    expected = offers(found, settings)
    with contextlib.suppress(SettingsError):
        changed = _parsed(_with_tables(raw, expected), settings)
        if offers(found, _without(changed, expected)) == expected:
            return Additions(expected, _text(expected), _faults(changed) if expected else [])
    return _of_another_file(found, raw, settings)


def _of_another_file(found: Sequence[FoundProvider], raw: bytes, settings: Settings) -> Additions:
    """The same for a file that has changed, or is not valid, or not with the tables."""
    try:
        on_disk = _parsed(raw, settings)
    except SettingsError as error:
        return _unreadable(found, settings, error)
    offered = offers(found, on_disk)
    try:
        faults = _faults(_parsed(_with_tables(raw, offered), settings)) if offered else []
    except SettingsError as error:
        faults = [*map(str, error.problems)]
    return Additions(offered, _text(offered), faults)


def _unreadable(found: Sequence[FoundProvider], settings: Settings, error: SettingsError) -> Additions:
    offered = offers(found, settings)
    return Additions(offered, _text(offered), [*map(str, error.problems)])


def _text(offered: Sequence[Offer]) -> str:
    return provider_text(offered) if offered else ""


def _with_tables(raw: bytes, offered: Sequence[Offer]) -> bytes:
    return raw + b"\n" + _text(offered).encode()


def _without(settings: Settings, offered: Sequence[Offer]) -> Settings:
    providers = {one.name for one in offered}
    models = {name for one in offered for name in one.models}
    return structs.replace(
        settings,
        providers={name: one for name, one in settings.providers.items() if name not in providers},
        models={name: one for name, one in settings.models.items() if name not in models},
    )


def _faults(settings: Settings) -> list[str]:
    findings = asyncio.run(check_settings(settings, CheckOptions(offline=True), config=settings.file))
    return [*map(str, findings.faults)]


def _parsed(raw: bytes, settings: Settings) -> Settings:
    return parse_files(settings.file, raw, read_parts(Path(settings.file), raw), demo=settings.demo)
