"""The providers that were found, as they fit into a configuration: under free names, without what is there already."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.admin.model_names import models_by_name
from gateway.config.currency import PUBLIC_CURRENCY, currency_of
from gateway.config.loopback import is_loopback
from gateway.config.settings import ProviderSettings, Settings
from gateway.setup.found_providers import FoundProvider
from gateway.setup.known_providers import SERVERS, Model

EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - an operator may write it for this machine
_PORTS = {server.name: server.port for server in SERVERS}


class Offer(Struct, frozen=True):
    """A found provider under a free name, with those of its models that can be added."""

    found: FoundProvider
    name: str
    models: dict[str, Model]
    notes: list[str]  # for people: why the name is another, and what is left out


def offers(found: Iterable[FoundProvider], settings: Settings | None = None) -> list[Offer]:
    """What to add to a configuration, or to an empty one: the providers that it does not have."""
    settings = settings or Settings()
    providers, models = set(settings.providers), set(models_by_name(settings))
    currency = currency_of(settings) or PUBLIC_CURRENCY
    offered = []
    for one in found:
        if not _is_configured(one, settings.providers.values()):
            offered.append(_offer(one, providers, models, currency))
            providers.add(offered[-1].name)
            models.update(offered[-1].models)
    return offered


def _offer(one: FoundProvider, providers: Container[str], taken: Container[str], currency: str) -> Offer:
    name = next(name for name in _names(one) if name not in providers)
    notes = [f"The provider is called {name}, because the name {one.name} is taken."] if name != one.name else []
    models = {model: values for model, values in one.models.items() if model not in taken}
    if left_out := [model for model in one.models if model in taken]:
        notes.append(
            f"Left out, because a model or an alias has the name: {', '.join(left_out)}. "
            "For calls of such a model to this provider too, add it to the model's targets."
        )
    if currency != PUBLIC_CURRENCY and (priced := [model for model, values in models.items() if values.price]):
        models = {model: values for model, values in models.items() if not values.price}
        notes.append(
            f"Left out, because public prices are in {PUBLIC_CURRENCY} and the configuration has prices in {currency}: "
            f"{', '.join(priced)}."
        )
    return Offer(one, name, models, notes)


def _names(one: FoundProvider) -> Iterator[str]:
    """The names that a provider may get, the best first."""
    yield one.name
    if one.port:
        yield f"{one.name}-{one.port}"
    for number in count(2):
        yield f"{one.name}-{number}"


def _is_configured(one: FoundProvider, providers: Iterable[ProviderSettings]) -> bool:
    """Whether a provider calls this server, or has this variable's key."""
    options = [options for provider in providers for options in _all_options(provider)]
    if one.port:
        return any(_local_port(each) == one.port for each in options)
    return any(each.get("api_key") == one.options["api_key"] for each in options)


def _all_options(provider: ProviderSettings) -> Sequence[Mapping[str, Any]]:
    """The options with each credential."""
    return [{**provider.options, **credential} for credential in provider.credentials or ({},)]


def _local_port(options: Mapping[str, Any]) -> int:
    """The port of this machine that a provider calls, as its address or its preset says; 0 for another machine."""
    if not options.get("base_url"):
        return _PORTS.get(str(options.get("preset", "")), 0)
    try:
        address = urlsplit(str(options["base_url"]))
        port = address.port or (443 if address.scheme == "https" else 80)
    except ValueError:
        return 0
    host = address.hostname or ""
    return port if is_loopback(host) or host in EVERY_ADDRESS else 0
