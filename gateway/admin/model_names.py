"""Names of models and groups as operators type them, checked against the configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gateway.config.settings import Settings
from gateway.config.toml_reader import suggestion
from gateway.errors import InvalidValue


def known_models(settings: Settings, names: Iterable[str], *, also: Collection[str] = ()) -> list[str]:
    """The names with aliases resolved; InvalidValue for one that neither the configuration nor `also` knows.

    A misspelt name in `deny` would otherwise deny nothing without an error.
    """
    models = {name: name for name in also} | models_by_name(settings)
    found = []
    for name in names:
        if name not in models:
            raise InvalidValue(f"no model {name!r} in the configuration{suggestion(name, models)}", param="models")
        found.append(models[name])
    return found


def model_of_price(settings: Settings, prices: Collection[str], name: str) -> str:
    """The model whose own price is meant, of those in `prices` or of the configuration; InvalidValue.

    A model with a price may be gone, and its name may be an alias of another model now.
    """
    return name if name in prices else known_models(settings, [name])[0]


def models_by_name(settings: Settings) -> dict[str, str]:
    """The models of the configuration by their names and aliases; an alias goes before a name."""
    aliases = {alias: name for name, model in settings.models.items() for alias in model.aliases}
    return {name: name for name in settings.models} | aliases


def known_group(settings: Settings, group: str) -> None:
    """InvalidValue for a group that the configuration lacks."""
    if group not in settings.groups:
        raise InvalidValue(
            f"no group {group!r} in the configuration{suggestion(group, settings.groups)}", param="group"
        )
