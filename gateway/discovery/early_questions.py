"""Which lists a reload asks for at once: those of providers that are new or changed, or whose patterns are."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from gateway.config.settings import ModelPattern, ProviderSettings, Settings
from gateway.discovery.stored_lists import LENGTH, list_id


def changed_providers(before: Settings, after: Settings) -> set[str]:
    """The providers to ask after the settings have changed."""
    if before is after:
        return set()
    asked = [name for name, provider in after.providers.items() if provider.discover]
    return {name for name in asked if _asked_with(before, name) != _asked_with(after, name)}


def early_id(settings: Settings, name: str) -> str:
    """A name of the question with these settings: of all workers that have them, one asks."""
    own = msgspec.json.encode(_asked_with(settings, name), enc_hook=str, order="sorted")
    return f"{list_id(name, settings.providers[name])}:{sha256(own).hexdigest()[:LENGTH]}"


def _asked_with(settings: Settings, name: str) -> tuple[ProviderSettings | None, dict[str, ModelPattern]]:
    """What decides on the list of a provider, and on what is served of it."""
    patterns = {key: pattern for key, pattern in settings.patterns.items() if pattern.provider == name}
    return settings.providers.get(name), patterns
