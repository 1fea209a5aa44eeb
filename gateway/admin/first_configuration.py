"""The first configuration of a gateway, as commented TOML, from the providers that were found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.admin.found_providers import VENDORS, Found
from gateway.admin.imports.toml_text import Section, comment_lines, write_sections

PORT = 8080
OTHER_PORT = 8085  # where a local model server has the other one
HEAD = (
    "The configuration of model-gateway, written by `gateway init`. Change it as you like, and run `gateway check`.",
    "Secrets are references, env:NAME or file:PATH: this file may go into a repository.",
    "Every setting: docs/configuration.md.",
)


def first_configuration(found: Sequence[Found]) -> str:
    """The text of a complete gateway.toml."""
    head = "\n".join(comment_lines(HEAD))
    return f"{head}\n\n{write_sections([*_sections_of_server(found), *provider_sections(found)])}"


def provider_text(found: Sequence[Found]) -> str:
    """The tables of these providers and their models alone, to be added to a file."""
    return write_sections(provider_sections(found))


def provider_sections(found: Sequence[Found]) -> list[Section]:
    """The tables of the providers and of their models; without any provider, commented examples."""
    if not found:
        return _examples()
    sections, names = [], set[str]()
    for one in found:
        sections.append(Section(["providers", one.name], dict(one.options), [one.why + "."]))
        for model, price in one.models.items():
            if model not in names:  # of another provider
                sections.append(_model(one, model, price))
            names.add(model)
    return sections


def _sections_of_server(found: Iterable[Found]) -> list[Section]:
    taken = any(one.port == PORT for one in found)
    why = [f"Port {PORT} is that of the local model server below."] if taken else []
    comments = ["Address and port of /v1; 0.0.0.0 serves other machines, too.", *why]
    return [
        Section(["server"], {"host": "127.0.0.1", "port": OTHER_PORT if taken else PORT}, comments),
        Section(["console"], {"enabled": True, "port": 8081}, ["The console: keys, prices and usage in a browser."]),
        Section(["store"], {"data_dir": "var"}, ["Balances, keys and history; relative to this file."]),
    ]


def _model(one: Found, model: str, price: str) -> Section:
    values: dict[str, Any] = {"provider": one.name}
    if model in one.embeddings:
        values["endpoints"] = ["embeddings"]
    if price:
        return Section(["models", model], {**values, "price": price})
    comments = ["Calls are free. To charge for them, put a price in place of `free`."]
    return Section(["models", model], {**values, "free": True}, comments)


def _examples() -> list[Section]:
    fake = Section(
        ["providers", "fake"],
        {"plugin": "fake"},
        ["No key and no model server was found. This provider makes up answers without a network."],
    )
    vendor = VENDORS[0]
    options = {**vendor.options, "api_key": f"env:{vendor.variables[0]}"}
    model, price = next(iter(vendor.models.items()))
    key = ["For a vendor, remove the # of these lines and set the variable."]
    return [
        fake,
        Section(["models", "fake-chat"], {"provider": "fake", "free": True}),
        Section(["providers", vendor.name], options, key, is_commented=True),
        Section(["models", model], {"provider": vendor.name, "price": price}, is_commented=True),
    ]
