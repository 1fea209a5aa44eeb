"""The configuration in use as TOML, with defaults, without secrets. Where nothing is hidden, it is a configuration.

References such as `env:NAME` are shown. A text is hidden if its name is that of a credential, or if it looks like one;
with literal secrets permitted (the demo), every text among a provider's options is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from gateway.amounts import NANO, format_amount
from gateway.billing.price_form import price_form
from gateway.config.model_patterns import PriceRule
from gateway.config.price_settings import MaxPriceSettings, PriceSettings
from gateway.config.secret import HIDDEN, Secret
from gateway.config.settings import SECTIONS, ModelPattern, ModelSettings, Settings
from gateway.config.toml_reader import fields_of
from gateway.redaction import redact
from gateway.setup.toml_text import Section, write_sections

NAMED = ("oidc", "providers", "models", "groups", "hooks")  # sections with a table for each name
FACTORS = frozenset({"price_factor", "markup", "batch_factor"})
NANO_FIELDS = frozenset({"balance_low", "signup_credit", "max_session_cost"})
SHOWN_OPTIONS = frozenset({"preset", "base_url"})  # also where literal secrets are permitted
NO_CREDENTIALS = frozenset({"tls_key", "max_tokens_field"})  # by their names they could be
_CREDENTIAL = re.compile(r"key|secret|token|password|passphrase|authorization|cookie|credential", re.IGNORECASE)
_REFERENCE = ("env:", "file:")


def effective_configuration(settings: Settings, *, but: str = "") -> str:
    """The text, without the section `but`."""
    return write_sections(_sections(settings, [name for name in SECTIONS if name != but]))


def effective_models(settings: Settings, names: Iterable[str]) -> str:
    """The text of these models and patterns."""
    named = models_of_file(settings)
    return write_sections(Section(["models", name], _table(named[name], literals=settings.demo)) for name in names)


def models_of_file(settings: Settings) -> dict[str, ModelSettings | ModelPattern]:
    """The models that the file names, and its patterns; not the models that follow from these."""
    return {**settings.configured.models, **settings.patterns}


def _sections(settings: Settings, names: Iterable[str]) -> Iterator[Section]:
    for name in names:
        value: Any = models_of_file(settings) if name == "models" else getattr(settings, name)
        if name in NAMED:
            for item, one in sorted(value.items()):
                yield Section([name, item], _table(one, literals=settings.demo))
        else:
            yield from _with_tables_in([name], value, literals=settings.demo)


def _with_tables_in(path: list[str], value: Struct, *, literals: bool) -> Iterator[Section]:
    """A section, then the sections in it."""
    tables = [name for name in value.__struct_fields__ if isinstance(getattr(value, name), Struct)]
    own = {name: item for name, item in _table(value, literals=literals).items() if name not in tables}
    yield Section(path, own)
    for name in tables:
        yield from _with_tables_in([*path, name], getattr(value, name), literals=literals)


def _table(value: Struct, *, literals: bool) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, field in fields_of(type(value)).items():
        item = getattr(value, field.name)
        if name == "options":
            table |= _options(item, literals=literals)
        elif name == "credentials":
            table[name] = _options(item, literals=literals)
        elif name in FACTORS:
            table[name] = item / NANO
        elif name in NANO_FIELDS:
            table[name] = None if item is None else format_amount(item)
        else:
            table[name] = _value(item, name)
    return {name: item for name, item in table.items() if item not in (None, {}, [])}


def _value(value: Any, name: str) -> Any:
    match value:
        case PriceSettings():
            return price_form(value)
        case MaxPriceSettings():
            return {key: format_amount(amount) for key, amount in value.bounds().items()}
        case PriceRule():
            return list(value.sources) or [price_form(price) for price in value.tables]
        case Secret():
            return value.reference
        case Struct():
            return {
                key: shown for key in value.__struct_fields__ if (shown := _value(getattr(value, key), key)) is not None
            }
        case Mapping():
            return {str(key): _value(item, str(key)) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_value(item, name) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
        case None | bool() | int() | float():
            return value
        case timedelta():
            return f"{value.total_seconds():g}s"
    return _text(str(value), name)


def _options(value: Any, *, literals: bool, name: str = "") -> Any:
    match value:
        case Mapping():
            return {str(key): _options(item, literals=literals, name=str(key)) for key, item in value.items()}
        case list() | tuple():
            return [_options(item, literals=literals, name=name) for item in value]
        case str() if literals and name not in SHOWN_OPTIONS and not value.startswith(_REFERENCE):
            return HIDDEN
        case str():
            return _text(value, name)
        case None | bool() | int() | float():
            return value
    return _text(str(value), name)


def _text(text: str, name: str) -> str:
    if text.startswith(_REFERENCE) or not text:
        return text
    return HIDDEN if _CREDENTIAL.search(name) and name not in NO_CREDENTIALS else redact(text)
