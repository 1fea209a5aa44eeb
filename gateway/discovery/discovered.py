"""The settings with the models that the lists of providers have: what every process serves, shows and checks.

`discovered(settings, lists, now)` depends on its arguments alone. It is called when a list or the configuration has
changed, never for a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.config.pattern_models import Candidate, FoundModel, found_models, with_models
from gateway.config.price_settings import PriceSettings
from gateway.config.settings import Settings
from gateway.discovery.checked_lists import candidate_price
from gateway.discovery.stored_lists import NEVER_ASKED, NO_LIST, ListState, StoredList, StoredModel, list_id


class KnownList(Struct, frozen=True):
    """A provider's last good list, and how the questions for it ended."""

    state: ListState = NEVER_ASKED
    found: StoredList = NO_LIST

    def is_usable(self, now: float, keep: float) -> bool:
        """Whether it is young enough; a clock that is behind makes no list too old."""
        return bool(self.state.version) and self.state.at > now - keep


class ProviderModels(Struct, frozen=True):
    """What becomes of the list of one provider."""

    provider: str
    state: ListState
    is_usable: bool
    models: tuple[FoundModel, ...] = ()
    listed: Mapping[str, StoredModel] = {}  # by the upstream's name

    def counts(self) -> dict[str, int]:
        """How many models are served, and how many are not by each reason, those that are no models included."""
        counts = dict(self.state.left_out) if self.is_usable else {}
        for one in self.models:
            counts[one.state] = counts.get(one.state, 0) + 1
        return counts


class Discovered(Struct, frozen=True):
    """The settings with all models, and each list."""

    file: Settings  # the settings of the file
    settings: Settings
    providers: tuple[ProviderModels, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()  # of the lists that were used


KnownLists = Mapping[str, KnownList]  # by `list_id`
NO_LISTS: KnownLists = {}


def discovered(file: Settings, lists: KnownLists, now: float) -> Discovered:
    """The settings of the file with the models of the lists that are young enough. A name is that of the first list."""
    providers, settings = [], file
    for name, provider in settings.providers.items():
        if not provider.discover:
            continue
        known = lists.get(list_id(name, provider), KnownList())
        is_usable = known.is_usable(now, provider.keeps_list)
        listed = known.found.models if is_usable else ()
        found = tuple(found_models(settings, name, map(_candidate, listed)))
        settings = with_models(settings, {one.name: one.model for one in found if one.model is not None})
        by_name = {one.name: one for one in listed}
        providers.append(ProviderModels(name, known.state, is_usable, found, by_name))
    return Discovered(file, settings, tuple(providers), usable_versions(file, lists, now))


def usable_versions(settings: Settings, lists: KnownLists, now: float) -> tuple[tuple[str, str], ...]:
    """What decides on the models beside the settings: the lists that are young enough, with their versions."""
    names = _ids(settings)
    return tuple(
        (name, lists[name].state.version)
        for name, keep in names.items()
        if name in lists and lists[name].is_usable(now, keep)
    )


def _ids(settings: Settings) -> dict[str, float]:
    """Of each list, the seconds for which it is used."""
    asked: Iterable[str] = (name for name, provider in settings.providers.items() if provider.discover)
    return {list_id(name, settings.providers[name]): settings.providers[name].keeps_list for name in asked}


def _candidate(model: StoredModel) -> Candidate:
    price = candidate_price(model)
    return Candidate(
        name=model.name,
        endpoints=model.endpoints,
        context_window=model.context_window,
        max_output_tokens=model.max_output_tokens,
        created=model.created,
        price=PriceSettings(**price) if price is not None else None,
        problem=model.problem,
        detail=model.detail,
    )
