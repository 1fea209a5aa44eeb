"""Reads a configuration file and checks its settings.

`load(path)` reads a file, checks each value and the values against each other, and raises `SettingsError` with all
problems at once. `find_config()` finds the file; `demo_settings()` needs no file.
"""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from gateway.config.advice import advise
from gateway.config.includes import INCLUDE, Part, merge, read_parts
from gateway.config.model_patterns import STAR
from gateway.config.origins import Origins
from gateway.config.pattern_models import with_public_models
from gateway.config.pattern_validation import check_patterns
from gateway.config.provider_settings import OWN_HOOK_KEYS, OWN_PROVIDER_KEYS, forwarded_names
from gateway.config.public_tables import PublicTables, UnreadableTable
from gateway.config.settings import (
    DEFAULT_GROUP,
    SECTIONS,
    GroupSettings,
    HookSettings,
    ModelPattern,
    ModelSettings,
    ProviderSettings,
    Settings,
    StoreSettings,
)
from gateway.config.toml_reader import Key, SettingsError, SettingsProblem, TomlReader, fields_of, plain, read_file
from gateway.config.validation import check
from gateway.config.variables import VariableError, is_variable, variable_text

DEMO_FOLDER = Path("var/demo")
DEMO_PORTS_VARIABLE = "GATEWAY_DEMO_PORTS"
CONFIG_PLACES = (Path("gateway.toml"), Path("/etc/gateway/gateway.toml"))


def find_config(explicit: str | os.PathLike[str] | None = None) -> Path | None:
    """The file to use: `explicit`, else `$GATEWAY_CONFIG`, else the first of CONFIG_PLACES that exists, else None."""
    named = explicit or os.environ.get("GATEWAY_CONFIG")
    if named:
        return Path(named)  # if it is missing, this is an error; other places are not searched
    return next((place for place in CONFIG_PLACES if place.is_file()), None)


def load(path: Path, *, demo: bool = False) -> Settings:
    """The settings in `path`, checked; SettingsError with every problem found."""
    raw = read_file(path)
    return parse_files(str(path), raw, read_parts(path, raw), demo=demo)


def parse_files(file: str, raw: bytes, parts: Sequence[Part], *, demo: bool = False, newest: str = "") -> Settings:
    """The checked settings of a file with the files that it includes; `newest` as for `parse`."""
    document, origins = merge(file, raw, parts)
    return parse(document, file=file, demo=demo, origins=origins if parts else None, newest=newest)


def parse(
    document: Mapping[str, Any],
    *,
    file: str = "",
    demo: bool = False,
    origins: Origins | None = None,
    newest: str = "",
) -> Settings:
    """The checked settings of a TOML document; decimals are `Decimal`, as from `parse_toml`.

    `newest`: the newest table of public prices to use.
    """
    folder = Path(file).parent if file else Path()
    try:
        tables = PublicTables.of(_data_dir(document, folder), newest)
    except UnreadableTable as error:
        raise SettingsError([SettingsProblem(file or "configuration", "store.data_dir", str(error))]) from None
    reader = TomlReader(file or "configuration", folder=folder, literals=demo, origins=origins, tables=tables)
    kinds = {name: field.type for name, field in fields_of(Settings).items()}
    sections: dict[str, Any] = {}
    for name, table in document.items():
        if name == INCLUDE:
            continue  # it is merged already
        if name not in SECTIONS:
            reader.unknown((name,), SECTIONS)
        elif name == "providers":
            sections[name] = _providers(table, reader)
        elif name == "hooks" and isinstance(table, dict):
            sections[name] = {one: _hook(options, reader, (name, one)) for one, options in table.items()}
        elif name == "models" and isinstance(table, dict):
            sections |= _models(table, reader)
        else:
            sections[name] = reader.value(kinds[name], table, (name,))
    settings = Settings(**{name: _sound(section) for name, section in sections.items() if section is not None})
    settings = structs.replace(
        settings,
        file=file,
        demo=demo,
        origins=origins,
        tables=tables,
        groups={DEFAULT_GROUP: GroupSettings(), **settings.groups},
        forwarded=forwarded_names(settings.providers),
    )
    settings = structs.replace(settings, warnings=(*_store_warnings(settings), *advise(settings)))
    known = _known(document)
    check(settings, reader, known=known)
    check_patterns(settings, reader, known=known)
    if reader.problems:
        raise SettingsError(reader.problems)
    try:
        return with_public_models(settings)
    except UnreadableTable as error:
        raise SettingsError([SettingsProblem(file or "configuration", "store.data_dir", str(error))]) from None


def _data_dir(document: Mapping[str, Any], folder: Path) -> Path | None:
    """The data directory as the document says it, which may be faulty."""
    store = document.get("store", {})
    text = store.get("data_dir", StoreSettings().data_dir) if isinstance(store, dict) else ""
    if is_variable(text):
        with contextlib.suppress(VariableError):  # the reader names the problem
            text = variable_text(text)[1]
    return (folder / Path(text).expanduser()).absolute() if isinstance(text, str) and text else None


def _known(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """The names that the file mentions, also those of faulty tables."""
    named = {name: _names(document.get(name)) for name in ("providers", "models", "groups", "hooks")}
    patterns = {name for name in named["models"] if STAR in name}
    models, groups = named["models"] - patterns, {DEFAULT_GROUP, *named["groups"]}
    return {**named, "models": models, "patterns": patterns, "groups": groups}


def _models(tables: Mapping[str, Any], reader: TomlReader) -> dict[str, Any]:
    """[models.*]: a name with a `*` is that of a pattern."""
    kinds: dict[str, tuple[str, Any]] = {}
    for name in tables:
        kinds[name] = ("patterns", ModelPattern) if STAR in name else ("models", ModelSettings)
    found: dict[str, Any] = {"models": {}}
    for name, (section, kind) in kinds.items():
        found.setdefault(section, {})[name] = reader.value(kind, tables[name], ("models", name))
    return found


def _providers(tables: object, reader: TomlReader) -> dict[str, Any] | None:
    """[providers.*]: `plugin`, `proxy` and `credentials` belong to the gateway, all other keys to the provider."""
    if not isinstance(tables, dict):
        return cast("dict[str, Any] | None", reader.value(dict[str, ProviderSettings], tables, ("providers",)))
    return {name: _provider(table, reader, ("providers", name)) for name, table in tables.items()}


def _provider(table: object, reader: TomlReader, key: Key) -> ProviderSettings | None:
    if not isinstance(table, dict):
        return reader.struct(ProviderSettings, table, key)
    own = {name: value for name, value in table.items() if name in OWN_PROVIDER_KEYS}
    provider = reader.struct(ProviderSettings, own, key)
    options = {name: plain(value) for name, value in table.items() if name not in OWN_PROVIDER_KEYS}
    if provider is None:
        return None
    for index, credential in enumerate(provider.credentials):
        for name in sorted(OWN_PROVIDER_KEYS & credential.keys()):
            reader.problem((*key, "credentials", index, name), f"{name} is set once for all credentials of a provider")
    credentials = tuple(plain(credential) for credential in provider.credentials)
    return structs.replace(provider, options=options, credentials=credentials)


def _hook(table: object, reader: TomlReader, key: Key) -> HookSettings | None:
    """[hooks.NAME]: the gateway's own keys, and the options of the plugin."""
    if not isinstance(table, dict):
        return reader.struct(HookSettings, table, key)
    hook = reader.struct(HookSettings, {one: value for one, value in table.items() if one in OWN_HOOK_KEYS}, key)
    options = {one: plain(value) for one, value in table.items() if one not in OWN_HOOK_KEYS}
    return None if hook is None else structs.replace(hook, options=options)


def _store_warnings(settings: Settings) -> tuple[str, ...]:
    """A text if the file itself has the password of the store."""
    if "@" not in settings.store.url or settings.store_url is not None:
        return ()
    return ("store.url has its password in the file: use store.password, or env:NAME or file:PATH for the URL",)


def _sound(section: Any) -> Any:
    """A section without the entries that had problems, so that the other entries are still cross-checked."""
    if isinstance(section, dict):
        return {name: entry for name, entry in section.items() if entry is not None}
    return section


def _names(table: object) -> set[str]:
    return set(table) if isinstance(table, dict) else set()


def demo_settings(data_dir: str | os.PathLike[str] = DEMO_FOLDER) -> Settings:
    """The settings of `gateway serve --demo`: loopback, embedded store, built-in fake provider, two groups."""
    document = tomllib.loads(DEMO, parse_float=Decimal)
    document["store"] = {"data_dir": str(Path(data_dir).absolute())}
    port, console, metrics = _demo_ports()
    document["server"] = {"port": port, "tags": ["demo", "team"]}
    document |= {"console": {"port": console}, "metrics": {"port": metrics}}
    return structs.replace(parse(document, demo=True), file="")


def _demo_ports() -> tuple[int, int, int]:
    """The ports of `/v1`, the console and the metrics."""
    text = os.environ.get(DEMO_PORTS_VARIABLE) or "8080,8081,9090"
    if not re.fullmatch(r"[0-9]{1,5}(,[0-9]{1,5}){2}", text):
        problem = "three ports: of /v1, the console and the metrics, such as 8080,8081,9090"
        raise SettingsError([SettingsProblem("", DEMO_PORTS_VARIABLE, problem)])
    first, second, third = map(int, text.split(","))
    return first, second, third


DEMO = '''
[groups.partner]
price_factor = 0.8

[providers.fake]
plugin = "fake"

[providers.fake.models.fake-writer]
interval = 0.03
text = """
Once there was a harbour with five grey herons. Each morning they stood in the shallow water and waited for the boats. \
Each boat had a name, each name a story, and each story a price: so many words out, so many words in. The herons never \
paid more than a story was worth, for the oldest of them counted every word twice, and wrote the sum into the sand."""

[models.fake-chat]
provider = "fake"
groups = ["default", "partner"]
aliases = ["demo"]
owned_by = "model-gateway"
created = 2026-11-21
context_window = 128000
max_output_tokens = 16384
price = { input = 0.5, cached_input = 0.05, output = 1.5, currency = "USD" }

[models.fake-writer]
provider = "fake"
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-21
context_window = 32000
max_output_tokens = 8192
price = { input = 2, cached_input = 0.2, output = 8, currency = "USD" }

[models.fake-embedding]
provider = "fake"
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-21
context_window = 8192
endpoints = ["embeddings"]
price = { input = 0.02, currency = "USD" }

[models.fake-image]
provider = "fake"
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-21
endpoints = ["images"]
price = { per_image = { "*" = { low = 0.01, medium = 0.04, high = 0.16, "*" = 0.16 } }, currency = "USD" }

[models.fake-moderation]
provider = "fake"
aliases = ["omni-moderation-latest"]
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-21
endpoints = ["moderation"]

[models.fake-realtime]
provider = "fake"
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-30
context_window = 32000
endpoints = ["realtime"]
price = { input = 4, output = 16, audio_input = 32, audio_output = 64, currency = "USD" }

[models.fake-rerank]
provider = "fake"
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-21
endpoints = ["rerank"]
price = { per_search_unit = 0.002, currency = "USD" }

[models.fake-speech]
provider = "fake"
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-21
endpoints = ["speech"]
price = { per_character = 15, currency = "USD" }

[models.fake-transcription]
provider = "fake"
groups = ["default", "partner"]
owned_by = "model-gateway"
created = 2026-11-21
endpoints = ["transcription"]
price = { per_second_in = 0.0001, currency = "USD" }
'''
