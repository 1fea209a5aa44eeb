"""The store's URL as an address: `redis://`, `rediss://` and `unix://`, with user, password, database and options.

    redis://user:secret@host:6379/2     rediss://host?ssl_ca_certs=ca.pem     unix:///run/redis.sock?db=1

Option names are redis-py's. Sharp edge: user and password are percent-decoded, so `@` and `/` in them must be encoded.
No message repeats the URL, for it may hold the password.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway.store.fault import StoreFault
from gateway.transport.redis_address import RedisAddress

OPTIONS = {
    "db": "db",
    "username": "username",
    "password": "password",
    "protocol": "protocol",
    "ssl_ca_certs": "tls_ca",
    "ssl_certfile": "tls_cert",
    "ssl_keyfile": "tls_key",
    "ssl_cert_reqs": "tls_verify",
}


def parse_address(url: str) -> RedisAddress:
    """The address in `url`; StoreFault says what is wrong with it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreFault("store.url: not a URL") from None
    fields: dict[str, Any] = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    if parts.scheme == "unix":
        fields["path"] = unquote(parts.path)
        if not fields["path"] or parts.hostname:
            raise StoreFault("store.url: a unix socket is written unix:///absolute/path")
    elif parts.scheme in {"redis", "rediss"}:
        fields |= {"host": parts.hostname or "127.0.0.1", "port": _port(parts), "tls": parts.scheme == "rediss"}
        if parts.path.strip("/"):
            fields["db"] = _number("the database", parts.path.strip("/"))
    elif parts.scheme in {"redis+sentinel", "redis+cluster"}:
        raise StoreFault(
            f"store.url: {parts.scheme}:// is not supported by this version; give one server's redis:// URL"
        )
    else:
        raise StoreFault(f"store.url: {parts.scheme or 'no'}:// scheme; known are redis://, rediss:// and unix://")
    fields |= _options(parts)
    if fields.get("protocol", 3) not in {2, 3}:
        raise StoreFault("store.url: protocol is 2 or 3")
    return RedisAddress(**fields)


def address_of(where: str | Path | RedisAddress) -> RedisAddress:
    """An address from a URL, from a unix socket's path, or as it is."""
    if isinstance(where, RedisAddress):
        return where
    if isinstance(where, Path) or "://" not in where:
        return RedisAddress(path=str(where))
    return parse_address(where)


def _options(parts: SplitResult) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            raise StoreFault(f"store.url: unknown option {name!r}; known are {', '.join(OPTIONS)}")
        options[OPTIONS[name]] = value
    for name in ("db", "protocol"):
        if name in options:
            options[name] = _number(name, options[name])
    if "tls_verify" in options:
        options["tls_verify"] = options["tls_verify"].lower() != "none"
    return options


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or 6379
    except ValueError:  # its text quotes the port, which is a piece of the password when a / in that was not encoded
        raise StoreFault(
            "store.url: the port is no number up to 65535; is / or # in a password percent-encoded?"
        ) from None


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise StoreFault(f"store.url: {what} is a number")
    return int(text)
