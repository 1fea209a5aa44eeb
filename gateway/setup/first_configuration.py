"""The first configuration of a gateway, as commented TOML, from the providers that were found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from gateway.setup.known_providers import VENDORS, Model
from gateway.setup.offered_providers import Offer
from gateway.setup.toml_text import Section, comment_lines, write_sections

PORT = 8080
OTHER_PORT = 8085  # where a local model server has the other one
HEAD = (
    "The configuration of model-gateway, written by `gateway init`. Change it as you like, and run `gateway check`.",
    "Secrets are references, env:NAME or file:PATH: this file may go into a repository.",
    "Every setting: docs/configuration.md.",
)


def first_configuration(offered: Sequence[Offer]) -> str:
    """The text of a complete gateway.toml."""
    head = "\n".join(comment_lines(HEAD))
    sections = _provider_sections(offered) if offered else _examples()
    return f"{head}\n\n{write_sections([*_sections_of_server(offered), *sections])}"


def provider_text(offered: Iterable[Offer]) -> str:
    """The tables of these providers and their models alone, to be added to the end of a file."""
    return write_sections(_provider_sections(offered))


def _provider_sections(offered: Iterable[Offer]) -> list[Section]:
    """The tables of the providers and of their models."""
    sections = []
    for one in offered:
        comments = [f"{one.found.why}.", *one.notes]
        sections.append(Section(["providers", one.name], dict(one.found.options), comments))
        sections += [_model(one.name, name, model) for name, model in one.models.items()]
    return sections


def _sections_of_server(offered: Iterable[Offer]) -> list[Section]:
    taken = any(one.found.port == PORT for one in offered)
    why = [f"Port {PORT} is that of the local model server below."] if taken else []
    comments = ["Address and port of /v1; 0.0.0.0 serves other machines, too.", *why]
    return [
        Section(["server"], {"host": "127.0.0.1", "port": OTHER_PORT if taken else PORT}, comments),
        Section(["console"], {"enabled": True, "port": 8081}, ["The console: keys, prices and usage in a browser."]),
        Section(["store"], {"data_dir": "var"}, ["Balances, keys and history; relative to this file."]),
    ]


def _model(provider: str, name: str, model: Model) -> Section:
    values: dict[str, Any] = {"provider": provider, **({"model": model.upstream} if model.upstream else {})}
    if model.endpoint != "chat":
        values["endpoints"] = [model.endpoint]
    if model.context_window is not None:
        values["context_window"] = model.context_window
    if model.price:
        return Section(["models", name], {**values, "price": model.price})
    comments = ["Calls are free. To charge for them, put a price in place of `free`."]
    return Section(["models", name], {**values, "free": True}, comments)


def _examples() -> list[Section]:
    fake = Section(
        ["providers", "fake"],
        {"plugin": "fake"},
        ["No key and no model server was found. This provider makes up answers without a network."],
    )
    vendor = VENDORS[0]
    options = {**vendor.options, "api_key": f"env:{vendor.variables[0]}"}
    name, model = next(iter(vendor.models.items()))
    key = ["For a vendor, remove the # of these lines and set the variable."]
    return [
        fake,
        Section(["models", "fake-chat"], {"provider": "fake", "free": True}),
        Section(["providers", vendor.name], options, key, is_commented=True),
        structs.replace(_model(vendor.name, name, model), is_commented=True),
    ]
