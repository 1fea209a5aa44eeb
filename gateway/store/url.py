"""The store's URL as an address: one server, sentinels or a cluster, with user, password, database and options.

    redis://user:secret@host:6379/2     rediss://host?ssl_ca_certs=ca.pem     unix:///run/redis.sock?db=1
    redis+sentinel://user:secret@one,two:26379,three/SERVICE/DB?sentinel_password=other
    redis+cluster://user:secret@one:6379,two:6379?tls=true

Most option names are redis-py's; user and password are those of the servers, not of the sentinels. Sharp edge: both are
percent-decoded, so `@` and `/` in them must be encoded. No message repeats the URL, for it may hold the password.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from gateway.store.address import ClusterAddress, RedisAddress, SentinelAddress, StoreAddress
from gateway.store.fault import StoreSetupError

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
MANY_OPTIONS = OPTIONS | {"tls": "tls"}  # for schemes that do not imply TLS
SENTINEL_OPTIONS = MANY_OPTIONS | {
    "sentinel_username": "sentinel_username",
    "sentinel_password": "sentinel_password",
    "sentinel_tls": "sentinel_tls",
}
SCHEMES = "redis://, rediss://, unix://, redis+sentinel:// and redis+cluster://"


def parse_address(url: str) -> StoreAddress:
    """The address in `url`; StoreSetupError describes a fault in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreSetupError("store.url: not a URL") from None
    if parts.scheme == "redis+sentinel":
        return _sentinels(parts)
    if parts.scheme == "redis+cluster":
        return _cluster(parts)
    return _one_server(parts)


def _one_server(parts: SplitResult) -> RedisAddress:
    fields: dict[str, Any] = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    if parts.scheme == "unix":
        fields["path"] = unquote(parts.path)
        if not fields["path"] or parts.hostname:
            raise StoreSetupError("store.url: a unix socket is written unix:///absolute/path")
    elif parts.scheme in {"redis", "rediss"}:
        fields |= {"host": parts.hostname or "127.0.0.1", "port": _port(parts), "tls": parts.scheme == "rediss"}
        if parts.path.strip("/"):
            fields["db"] = _number("the database", parts.path.strip("/"))
    else:
        raise StoreSetupError(f"store.url: {parts.scheme or 'no'}:// scheme; known are {SCHEMES}")
    fields |= _options(parts, OPTIONS)
    return RedisAddress(**fields)


def _sentinels(parts: SplitResult) -> SentinelAddress:
    login, hosts = _hosts(parts, port=26379)
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise StoreSetupError("store.url: the service is missing: redis+sentinel://host:port,host:port/SERVICE/DB")
    if database:
        login["db"] = _number("the database", database)
    login |= _options(parts, SENTINEL_OPTIONS)
    sentinel = {
        "username": login.pop("sentinel_username", ""),
        "password": login.pop("sentinel_password", ""),
        "tls": login.pop("sentinel_tls", login.get("tls", False)),
    }
    server = RedisAddress(**login)
    return SentinelAddress(
        sentinels=tuple(
            msgspec.structs.replace(server, host=host, port=port, db=0, protocol=3, **sentinel) for host, port in hosts
        ),
        service=unquote(service),
        server=server,
    )


def _cluster(parts: SplitResult) -> ClusterAddress:
    login, hosts = _hosts(parts, port=6379)
    login |= _options(parts, MANY_OPTIONS)
    if parts.path.strip("/0") or login.get("db"):
        raise StoreSetupError("store.url: a cluster has database 0 only")
    return ClusterAddress(nodes=tuple(RedisAddress(host=host, port=port, **login) for host, port in hosts))


def address_of(where: str | Path | StoreAddress) -> StoreAddress:
    """An address from a URL or from a unix socket's path; an address is returned unchanged."""
    if isinstance(where, RedisAddress | SentinelAddress | ClusterAddress):
        return where
    if isinstance(where, Path) or "://" not in where:
        return RedisAddress(path=str(where))
    return parse_address(where)


def _hosts(parts: SplitResult, *, port: int) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """The login before the `@`, and every host with its port."""
    userinfo, _, netloc = parts.netloc.rpartition("@")
    username, _, password = userinfo.partition(":")
    hosts = []
    for text in netloc.split(","):
        try:
            host = urlsplit(f"//{text}")
        except ValueError:
            raise StoreSetupError("store.url: not a URL") from None
        if not host.hostname:
            raise StoreSetupError(f"store.url: {parts.scheme}:// needs hosts: {parts.scheme}://host:port,host:port")
        hosts.append((host.hostname, _port(host, port)))
    return {"username": unquote(username), "password": unquote(password)}, hosts


def _options(parts: SplitResult, known: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            raise StoreSetupError(f"store.url: unknown option {name!r}; known are {', '.join(known)}")
        options[known[name]] = value
    for name in ("db", "protocol"):
        if name in options:
            options[name] = _number(name, options[name])
    if "tls_verify" in options:
        options["tls_verify"] = options["tls_verify"].lower() != "none"
    for name in ("tls", "sentinel_tls"):
        if name in options:
            if options[name] not in {"true", "false"}:
                raise StoreSetupError(f"store.url: {name} is true or false")
            options[name] = options[name] == "true"
    if options.get("protocol", 3) not in {2, 3}:
        raise StoreSetupError("store.url: protocol is 2 or 3")
    return options


def _port(parts: SplitResult, default: int = 6379) -> int:
    try:
        return parts.port or default
    except ValueError:  # its text has the port, which is a part of the password if a / in that was not encoded
        raise StoreSetupError(
            "store.url: the port is no number up to 65535; is / or # in a password percent-encoded?"
        ) from None


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise StoreSetupError(f"store.url: {what} is a number")
    return int(text)
