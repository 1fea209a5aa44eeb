"""What a new table of public prices changes of the models that patterns serve, which no file names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from gateway.config.pattern_models import with_public_models
from gateway.config.settings import ModelSettings, Settings
from gateway.discovery.discovered import KnownLists, discovered


class PatternChange(Struct, frozen=True, kw_only=True):
    """A model of a pattern whose price differs, or that is served with one of both tables only."""

    model: str
    change: str  # "changed", "added" or "removed"


def pattern_changes(settings: Settings, rows: Mapping[str, Any], lists: KnownLists) -> list[PatternChange]:
    """The models that differ with these rows as the newest table, by name; `lists` are those of the providers."""
    now = time.time()
    before = _models(settings, lists, now)
    draft = structs.replace(settings.tables, draft=dict(rows))
    after = _models(structs.replace(settings, tables=draft), lists, now)
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None or old.price != new.price:
            word = "added" if old is None else "removed" if new is None else "changed"
            found.append(PatternChange(model=name, change=word))
    return found


def _models(settings: Settings, lists: KnownLists, now: float) -> dict[str, ModelSettings]:
    """The models that follow from patterns."""
    file = with_public_models(settings.configured)
    whole = discovered(file, lists, now).settings
    return {name: whole.models[name] for name in whole.from_patterns}
