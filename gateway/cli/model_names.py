"""Model names as operators type them, as the ledger knows them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gateway.cli.root import Failure
from gateway.config.settings import Settings
from gateway.config.toml_reader import suggestion


def known_models(settings: Settings, names: Iterable[str], *, also: Collection[str] = ()) -> list[str]:
    """The names with aliases resolved; Failure for one that neither the configuration nor `also` knows.

    A slip of the pen in `deny` would otherwise deny nothing, and say that all is well.
    """
    models = {name: name for name in (*also, *settings.models)}
    models |= {alias: name for name, model in settings.models.items() for alias in model.aliases}
    found = []
    for name in names:
        if name not in models:
            raise Failure(f"no model {name!r} in the configuration{suggestion(name, models)}")
        found.append(models[name])
    return found
