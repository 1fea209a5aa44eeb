"""What no single key can say about itself: the cross-checks of a configuration.

`check(settings, reader, known=…)` notes a problem for each name that leads nowhere, each contradiction, and each model
that would be served for nothing by oversight. `known` holds the names that the file mentions, those of faulty tables
included, so that one problem does not bring others in its train.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from gateway.config.endpoints import ANY_CALL, UNBILLED, UNITS
from gateway.config.loopback import is_loopback
from gateway.config.notify_settings import notify_problems
from gateway.config.oidc_settings import oidc_problems
from gateway.config.provider_settings import forwarding_refusal
from gateway.config.secret import Secret, SecretError
from gateway.config.server_settings import file_problems
from gateway.config.settings import ModelSettings, PriceSettings, Settings
from gateway.config.toml_reader import Key, TomlReader, suggestion
from gateway.email_address import is_address

DATABASE_SCHEMES = ("postgresql", "postgres")
MIN_KEEP_LINES = timedelta(hours=25)  # the ledger recognises a repeated settlement by its line
MAX_KEEP_ADDRESSES = timedelta(days=365)
STORE_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")
STORE_REFERENCES = ("password", "sentinel_password", "pepper", "previous_pepper")
MAX_MODEL_NAME = 256  # characters, as in `ChatRequest`

# Names of accounts and groups have the same form: both stand in the store's keys, and providers in metrics' labels.
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)

_PUBLIC_URL = re.compile(r"https?://[^/?#\s@]+(/[^?#\s]*)?", re.ASCII)
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+", re.ASCII)

Known = Mapping[str, Collection[str]]

#: Limits of [server.limits] of which the first fits into the second.
_ORDERED = (
    ("max_json_body", "max_account_bodies"),
    ("max_account_bodies", "max_bodies"),
    ("max_audio_body", "max_account_spool"),
    ("max_account_spool", "max_spool"),
)


def check(settings: Settings, reader: TomlReader, *, known: Known) -> None:
    """Note everything that contradicts something else."""
    _check_server(settings, reader)
    _check_store(settings, reader)
    _check_database(settings, reader)
    _check_console(settings, reader)
    _check_sign_up(settings, reader, known["groups"])
    _check_oidc(settings, reader)
    _check_mail(settings, reader)
    for path, problem in file_problems(settings.files, literals=reader.literals):
        reader.problem(("files", *path), problem)
    for name, problem in notify_problems(settings.notify, has_mail=bool(settings.mail.host), literals=reader.literals):
        reader.problem(("notify", name), problem)
    for section in ("providers", "groups", "hooks"):
        for name in known[section]:
            if not _LABEL.fullmatch(name):
                message = "a name has 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first"
                reader.problem((section, name), message)
    for name in known["models"]:
        if not is_model_name(name):
            reader.problem(("models", name), f"a model's name has 1 to {MAX_MODEL_NAME} printable characters")
    for name, provider in settings.providers.items():
        for index, header in enumerate(provider.forward_headers):
            if reason := forwarding_refusal(header):
                reader.problem(("providers", name, "forward_headers", index), reason)
    _check_aliases(settings, reader, known["models"])
    aliases = {alias for model in settings.models.values() for alias in model.aliases}
    names = {**known, "models": {*known["models"], *aliases}}
    today = datetime.now(UTC).date().isoformat()
    _check_currencies(settings, reader)
    _check_default_image_model(settings, reader, names["models"])
    for index, name in enumerate(settings.server.authenticate):
        _is_known("hook", name, reader, ("server", "authenticate", index), known=known["hooks"])
    for name, model in settings.models.items():
        key: Key = ("models", name)
        _check_targets(model, reader, key, known=names)
        _check_names(model, reader, key, known=names)
        _check_prices(model, reader, key, today=today)
        _check_costs(model, reader, key, today=today)
        if {name, *model.aliases} & set(model.fallbacks):
            reader.problem((*key, "fallbacks"), "a model cannot fall back on itself")


def is_model_name(name: str) -> bool:
    """Whether a model may have this name."""
    return 1 <= len(name) <= MAX_MODEL_NAME and name == name.strip() and name.isprintable()


def _check_server(settings: Settings, reader: TomlReader) -> None:
    server, metrics = settings.server, settings.metrics
    if server.port and (server.host, server.port) == (metrics.host, metrics.port):
        reader.problem(("metrics", "port"), f"port {metrics.port} is [server]'s already")
    for name, needs in (("tls_cert", "tls_key"), ("tls_key", "tls_cert"), ("tls_client_ca", "tls_cert")):
        if getattr(server, name) and not getattr(server, needs):
            reader.problem(("server", needs), f"missing: {name} needs it")
    if settings.console.tls_client_ca and not server.tls_cert:
        reader.problem(("server", "tls_cert"), "missing: tls_client_ca of [console] needs it")
    if server.proxy_protocol and not server.trusted_proxies:
        reader.problem(("server", "proxy_protocol"), "name the proxies that send it in trusted_proxies")
    for small, large in _ORDERED:
        if getattr(server.limits, small) > getattr(server.limits, large):
            reader.problem(("server", "limits", large), f"it is smaller than {small}, which could then never be used")


def _check_default_image_model(settings: Settings, reader: TomlReader, known: Collection[str]) -> None:
    name = settings.server.limits.default_image_model
    if not name:
        return
    key: Key = ("server", "limits", "default_image_model")
    if not _is_known("model", name, reader, key, known=known):
        return
    for own, model in settings.models.items():
        if name in (own, *model.aliases) and "images" not in model.endpoints:
            reader.problem(key, f"{name} does not serve images; say so in its endpoints")


def _check_store(settings: Settings, reader: TomlReader) -> None:
    store = settings.store
    references = {name: getattr(store, name) for name in STORE_REFERENCES}
    if store.url.startswith(("env:", "file:")):
        references["url"] = store.url
    elif store.url and ("://" not in store.url or store.url.partition("://")[0] not in STORE_SCHEMES):
        # Never the URL itself: it may carry a password.
        schemes = ", ".join(f"{name}://" for name in STORE_SCHEMES)
        reader.problem(("store", "url"), f"expected one of {schemes}, env:NAME, file:PATH, or empty")
    for name, reference in references.items():
        if reference:
            try:
                Secret.parse(reference, literals=reader.literals)
            except SecretError as error:
                reader.problem(("store", name), str(error))
    if not store.url:
        for name in ("password", "sentinel_password"):
            if references[name]:
                reader.problem(("store", name), "it is the password of a store of yours, but store.url is empty")


def _check_database(settings: Settings, reader: TomlReader) -> None:
    url = settings.database.url
    scheme = url.partition(":")[0]
    if scheme in ("env", "file"):
        try:
            Secret.parse(url)
        except SecretError as error:
            reader.problem(("database", "url"), str(error))
    elif url and (scheme not in DATABASE_SCHEMES or "://" not in url):
        # Never the URL itself: it may carry a password.
        reader.problem(("database", "url"), "expected postgresql://, env:NAME, file:PATH, or empty for SQLite")
    if settings.keep_lines < MIN_KEEP_LINES:
        reader.problem(("store", "keep_lines"), "expected at least 25h: a late settlement is recognised by its line")
    elif settings.keep_history <= settings.keep_lines:
        reader.problem(("database", "keep"), "expected more than store.keep_lines")
    if settings.keep_addresses > MAX_KEEP_ADDRESSES:
        reader.problem(("database", "keep_addresses"), "expected at most 365d: an address is personal data")


def _check_console(settings: Settings, reader: TomlReader) -> None:
    url = settings.console.public_url
    if url and not _PUBLIC_URL.fullmatch(url):
        reader.problem(("console", "public_url"), "expected https://HOST, with a path if a proxy adds one")
    api_url = settings.console.api_url
    if api_url and not _PUBLIC_URL.fullmatch(api_url):
        reader.problem(("console", "api_url"), "expected https://HOST/v1, with another path if a proxy adds one")
    if settings.console.root_path and not _ROOT_PATH.fullmatch(settings.console.root_path):
        reader.problem(("console", "root_path"), "expected a path such as /gateway, without a slash at its end")
    if settings.console.enabled and settings.console.port:
        for section, other in (("server", settings.server), ("metrics", settings.metrics)):
            if (settings.console.host, settings.console.port) == (other.host, other.port):
                reader.problem(("console", "port"), f"port {other.port} is [{section}]'s already")


def _check_sign_up(settings: Settings, reader: TomlReader, groups: Collection[str]) -> None:
    console = settings.console
    for index, domain in enumerate(console.signup_domains):
        if not _DOMAIN.fullmatch(domain):
            reader.problem(("console", "signup_domains", index), "expected a domain in lower case, as in example.com")
    _is_known("group", console.signup_group, reader, ("console", "signup_group"), known=groups)


def _check_oidc(settings: Settings, reader: TomlReader) -> None:
    issuers: dict[str, str] = {}
    for name, oidc in settings.oidc.items():
        if not _LABEL.fullmatch(name):
            reader.problem(("oidc", name), "a name has 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first")
        for key, problem in oidc_problems(oidc, literals=reader.literals):
            reader.problem(("oidc", name, *key), problem)
        if oidc.issuer in issuers:
            reader.problem(("oidc", name, "issuer"), f"it is the issuer of {issuers[oidc.issuer]} already")
        issuers.setdefault(oidc.issuer, name)
    if settings.oidc and not settings.console.public_url and not is_loopback(settings.console.host):
        message = "missing: identity providers send people back to this address after the sign-in"
        reader.problem(("console", "public_url"), message)


def _check_mail(settings: Settings, reader: TomlReader) -> None:
    mail = settings.mail
    if mail.host and not is_address(mail.sender):
        reader.problem(("mail", "from"), "expected the sender's address, as in gateway@example.com")
    if bool(mail.user) != bool(mail.password):
        reader.problem(("mail", "password" if mail.user else "user"), "missing: user and password go together")
    if mail.password:
        try:
            Secret.parse(mail.password, literals=reader.literals)
        except SecretError as error:
            reader.problem(("mail", "password"), str(error))


def _check_aliases(settings: Settings, reader: TomlReader, models: Collection[str]) -> None:
    taken: dict[str, str] = {}
    for name, model in settings.models.items():
        for index, alias in enumerate(model.aliases):
            key: Key = ("models", name, "aliases", index)
            if alias in models:
                reader.problem(key, f"{alias} is the name of a model")
            elif alias in taken:
                reader.problem(key, f"{alias} is an alias of {taken[alias]} already")
            taken.setdefault(alias, name)


def _check_targets(model: ModelSettings, reader: TomlReader, key: Key, *, known: Known) -> None:
    if model.targets:
        for field in ("provider", "model", "cost"):
            if getattr(model, field):
                reader.problem((*key, field), f"{field} and targets exclude each other; name it in each target")
    elif not model.provider:
        reader.problem((*key, "provider"), "missing: name a provider, or targets")
    places = [((*key, "targets", index, "provider"), target.provider) for index, target in enumerate(model.targets)]
    if model.provider:
        places.append(((*key, "provider"), model.provider))
    for place, provider in places:
        _is_known("provider", provider, reader, place, known=known["providers"])


def _check_names(model: ModelSettings, reader: TomlReader, key: Key, *, known: Known) -> None:
    named = (("group", "groups", model.groups), ("model", "fallbacks", model.fallbacks), ("hook", "hooks", model.hooks))
    for kind, field, names in named:
        for index, name in enumerate(names):
            _is_known(kind, name, reader, (*key, field, index), known=known[f"{kind}s"])


def _is_known(kind: str, name: str, reader: TomlReader, key: Key, *, known: Collection[str]) -> bool:
    if name not in known:
        reader.problem(key, f"no {kind} is named {name!r}{suggestion(name, known)}")
    return name in known


def _check_prices(model: ModelSettings, reader: TomlReader, key: Key, *, today: str) -> None:
    place: Key = (*key, "price")
    if not model.price:
        if not model.free and not _is_unbilled(model):
            reader.problem(place, "missing: a model has a price, or says free = true")
        return
    if model.free:
        reader.problem(place, "a price and free = true exclude each other")
        return
    for at, price in with_keys(model.price, place):
        _check_price(price, model, reader, at)
    _check_dates(model.price, reader, place, today=today)


def check_dated_prices(prices: Sequence[PriceSettings], reader: TomlReader, key: Key) -> None:
    """Note what is wrong with a price that several models may have; it charges for something, as each of them needs."""
    for at, price in with_keys(prices, key):
        if not _charges(price):
            reader.problem(at, "every amount is zero; a model that costs nothing says free = true")
        _check_tiers(price, reader, at)
    if prices:
        _check_dates(prices, reader, key, today=datetime.now(UTC).date().isoformat())


def price_problems(model: ModelSettings) -> list[str]:
    """What is wrong with the prices of a model that no file names; it is not served then."""
    reader = TomlReader("")
    if not model.price and not model.free and not _is_unbilled(model):
        return ["price: missing"]
    for price in model.price or ():
        _check_price(price, model, reader, ("price",))
    return [f"{problem.key}: {problem.message}" for problem in reader.problems]


def _is_unbilled(model: ModelSettings) -> bool:
    """Whether the model serves only endpoints that need no price."""
    return UNBILLED.issuperset(model.endpoints)


def _check_costs(model: ModelSettings, reader: TomlReader, key: Key, *, today: str) -> None:
    """The cost prices of the targets; nothing has to be in them, and amounts may be zero."""
    for place, costs in costs_of(model, key):
        for at, cost in with_keys(costs, place):
            _check_text_prices(cost, reader, at)
            _check_tiers(cost, reader, at)
        _check_dates(costs, reader, place, today=today)


def costs_of(model: ModelSettings, key: Key) -> Iterator[tuple[Key, tuple[PriceSettings, ...]]]:
    """The cost prices of a model's targets, each with its key."""
    if model.cost:
        yield (*key, "cost"), model.cost
    for index, target in enumerate(model.targets):
        if target.cost:
            yield (*key, "targets", index, "cost"), target.cost


def with_keys(prices: Sequence[PriceSettings], key: Key) -> Iterator[tuple[Key, PriceSettings]]:
    """The prices with their keys."""
    for index, price in enumerate(prices):
        yield key if len(prices) == 1 else (*key, index), price


def _check_price(price: PriceSettings, model: ModelSettings, reader: TomlReader, key: Key) -> None:
    if not _charges(price):
        reader.problem(key, "every amount is zero; a model that costs nothing says free = true")
        return
    if "chat" in model.endpoints:
        _check_text_prices(price, reader, key)
    said = {*(name for name, amount in price.amounts().items() if amount), *(["per_image"] if price.per_image else [])}
    for endpoint in model.endpoints:
        if not said & (UNITS[endpoint] | ANY_CALL) and (endpoint not in UNBILLED or _is_unbilled(model)):
            words = f"name one of {', '.join(sorted(UNITS[endpoint]))}, or" if UNITS[endpoint] else "name"
            reader.problem(key, f"{endpoint} would cost nothing: {words} per_request")
    _check_tiers(price, reader, key)


def _check_dates(prices: Sequence[PriceSettings], reader: TomlReader, key: Key, *, today: str) -> None:
    """From today on there is a price on every day, and just one."""
    dates = [price.effective_from or "" for price in prices]
    if dates[0] > today:
        reader.problem(key, f"missing until {dates[0]}: the price that holds now stands before it")
    for index, (before, after) in enumerate(pairwise(dates), start=1):
        if after <= before:
            reader.problem((*key, index, "effective_from"), "prices stand in rising order of their dates")


def _check_currencies(settings: Settings, reader: TomlReader) -> None:
    """Balances have one currency, so prices have; a margin needs costs in the same."""
    seen: dict[str, str] = {}
    for name, place, prices in all_prices(settings):
        for price in prices:
            if price.currency:
                seen.setdefault(price.currency, name)
                if price.currency != next(iter(seen)):
                    message = f"{price.currency}, but {seen[next(iter(seen))]} is priced in {next(iter(seen))}"
                    reader.problem((*place, "currency"), message)
                    break


def all_prices(settings: Settings) -> Iterator[tuple[str, Key, tuple[PriceSettings, ...]]]:
    """The prices and costs of each model, and the price of each pattern, with names and keys."""
    for name, model in settings.models.items():
        key: Key = ("models", name)
        yield name, (*key, "price"), model.price or ()
        yield from ((name, *found) for found in costs_of(model, key))
    for name, pattern in settings.patterns.items():
        if pattern.price is not None:
            yield name, ("models", name, "price"), pattern.price.tables


def _charges(price: PriceSettings) -> bool:
    tables = [price.amounts(), *(tier.amounts() for tier in price.tiers), *price.per_image.values()]
    return any(amount for table in tables for amount in table.values())


def _check_text_prices(price: PriceSettings, reader: TomlReader, key: Key) -> None:
    """Half a token price is an oversight: the other half would be free."""
    said = price.amounts()
    for name, other in (("input", "output"), ("output", "input")):
        if other in said and name not in said:
            reader.problem((*key, name), f"missing, while {other} has a price; 0 if it is meant to cost nothing")


def _check_tiers(price: PriceSettings, reader: TomlReader, key: Key) -> None:
    bounds = [tier.above_input_tokens for tier in price.tiers]
    for index, (before, after) in enumerate(pairwise(bounds), start=1):
        if after <= before:
            reader.problem((*key, "tiers", index, "above_input_tokens"), "tiers stand in rising order")
