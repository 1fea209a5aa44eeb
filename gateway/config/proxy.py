"""The HTTP proxy of a provider: what `[providers.NAME] proxy` may say, and which proxy a request takes.

`ProxySetting.parse(value)` checks all that needs no look at a secret; `resolve()` reads the secret or the environment
and returns the `Proxies` for `Upstream.through`. Messages name the variable or the file, never the URL, which may hold
a password. Sharp edge: the environment is read by `resolve` alone, once per provider and not once per request.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from gateway.config.secret import Secret, SecretError

ENVIRONMENT: Final = "env"  # the value that means HTTP_PROXY, HTTPS_PROXY and NO_PROXY

_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+", re.IGNORECASE)
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


class ProxyError(ValueError):
    """A proxy that cannot be used; the message never holds its URL."""


class Proxy(Struct, frozen=True):
    """One proxy, and the credentials that it is shown."""

    url: str  # scheme://host:port, without credentials
    authorization: str = ""  # the value of Proxy-Authorization; empty: none is sent

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """The proxy at an http or https URL; user and password may be percent-encoded."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise ProxyError("not a URL: expected http://HOST:PORT or https://HOST:PORT") from None
        if parts.scheme not in ("http", "https"):
            raise ProxyError("a proxy's URL begins with http:// or https://; other protocols are not supported")
        host = parts.hostname or ""
        if not _PRINTABLE.fullmatch(text) or not _HOST.fullmatch(host) or port == 0:
            raise ProxyError("not a URL: expected http://HOST:PORT or https://HOST:PORT")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ProxyError("a proxy's URL ends with its host or port")
        place = f"[{host}]" if ":" in host else host
        url = f"{parts.scheme}://{place}:{port or (443 if parts.scheme == 'https' else 80)}"
        return cls(url, "" if parts.username is None else _basic(parts.username, parts.password or ""))

    def __repr__(self) -> str:
        return "Proxy(***)"


class Proxies(Struct, frozen=True):
    """Which proxy a request takes, by its scheme and host."""

    http: Proxy | None = None
    https: Proxy | None = None
    direct: tuple[str, ...] = ()  # hosts, domains and host:port that are reached without a proxy; "*": all

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy of requests to this origin; None: they go directly."""
        proxy = self.https if scheme == "https" else self.http
        if proxy is None or not self.direct:
            return proxy
        host = host.lower()
        return None if any(_covers(name, host, port) for name in self.direct) else proxy


class ProxySetting(Struct, frozen=True):
    """What the configuration says about the proxy of a provider."""

    url: Secret | None  # None: the environment's variables

    @classmethod
    def parse(cls, value: object, *, literals: bool = False, folder: Path | None = None) -> ProxySetting:
        """The setting for a TOML value; ProxyError for one that cannot be used.

        A literal URL with credentials is a problem unless `literals` allows it. Relative files are found from `folder`.
        """
        if value == ENVIRONMENT:
            return cls(None)
        if not isinstance(value, str) or ":" not in value:
            raise ProxyError('expected "env", http://HOST:PORT, https://HOST:PORT, env:NAME or file:PATH')
        if value.startswith(("env:", "file:")):
            try:
                return cls(Secret.parse(value, folder=folder))
            except SecretError as error:
                raise ProxyError(str(error)) from None
        if Proxy.parse(value).authorization and not literals:
            raise ProxyError("a proxy's URL with credentials is given as env:NAME or file:PATH, not as a literal")
        return cls(Secret("literal", value))

    @property
    def file(self) -> Path | None:
        """The file that holds the URL, if one does."""
        return None if self.url is None else self.url.file

    def resolve(self) -> Proxies:
        """The proxies as they are now; ProxyError when there is no usable URL where the setting says."""
        if self.url is None:
            return _of_environment()
        try:
            text = self.url.reveal()
        except SecretError as error:
            raise ProxyError(str(error)) from None
        proxy = _parse_at(self.url.reference, text)
        return Proxies(proxy, proxy)


def _of_environment() -> Proxies:
    """HTTP_PROXY, HTTPS_PROXY and NO_PROXY, of which names in lower case win."""
    from urllib.request import getproxies_environment  # loads the clients of HTTP and e-mail, which commands do without

    found = getproxies_environment()
    http, https = (_parse_at(f"{scheme.upper()}_PROXY", found.get(scheme, "")) for scheme in ("http", "https"))
    names = (name.lower() for name in re.split(r"[,\s]+", found.get("no", "")))
    return Proxies(http, https, tuple(name if name == "*" else _domain(name) for name in names if name))


def _parse_at(place: str, text: str) -> Proxy | None:
    """The proxy at a URL that stands in `place`; without a scheme, as such variables often are, it is http."""
    if not text:
        return None
    try:
        return Proxy.parse(text if "://" in text else f"http://{text}")
    except ProxyError as error:
        raise ProxyError(f"{place}: {error}") from None


def _domain(name: str) -> str:
    """`example.com` for `.example.com` and `*.example.com`, `::1` for `[::1]`."""
    name = name.removeprefix("*").removeprefix(".")
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def _covers(name: str, host: str, port: int) -> bool:
    return name in ("*", host, f"{host}:{port}") or host.endswith(f".{name}")


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
