"""Fetches what a caller names by address: over https, from public addresses only, with limits on size and time.

::

    async with PublicClient() as client:
        content = await client.get("https://example.com/cat.png", most=20 << 20)   # FetchFailed says why not

The name of a host is resolved once, each of its addresses is checked, and the connection uses just these. So neither a
private name, nor a redirect, nor a name whose address changes between check and use reaches a private network. Sharp
edge: this module imports aiohttp, 140 ms and 9 MB; import it where it is used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from types import TracebackType
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

WITHIN: Final = 10.0  # seconds for one address, its redirects included
MOST_REDIRECTS: Final = 3
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
PIECE: Final = 65_536  # bytes
PORTS: Final = frozenset({443})
NOT_PUBLIC: Final = "its host has no public address"
#: Networks whose addresses contain an IPv4 address, with the number of bits behind it.
_TRANSLATED: Final = (
    (IPv6Network("::/96"), 0),
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
)
#: Addresses that Python takes for global ones: site-local, and local NAT64.
_PRIVATE: Final = (IPv6Network("fec0::/10"), IPv6Network("64:ff9b:1::/48"))


class FetchFailed(Exception):
    """The content cannot be had; the text is for the caller, and names no address."""


def is_public(text: str) -> bool:
    """Whether an IP address belongs to the public internet; the IPv4 address inside an IPv6 one counts, too."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if any(address in network for network in _PRIVATE):
            return False
        for network, shift in _TRANSLATED:
            if address in network:
                return _is_global(IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    return _is_global(address)


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast


class PublicClient:
    """The connections of one request; nothing is kept after it, neither connections nor names nor cookies."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        connector = aiohttp.TCPConnector(
            resolver=_PublicResolver(), use_dns_cache=False, force_close=True, ssl=tls if tls is not None else True
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=WITHIN),
            headers={"Accept-Encoding": "identity", "User-Agent": "model-gateway"},
        )

    async def __aenter__(self) -> PublicClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, url: str, *, most: int) -> bytes:
        """The content of at most `most` bytes; FetchFailed if there is none, it is larger, or not public."""
        try:
            async with asyncio.timeout(WITHIN):
                return await self._follow(url, most)
        except TimeoutError:
            raise FetchFailed(f"it took longer than {WITHIN:g} seconds") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise FetchFailed("no answer could be read") from None

    async def _follow(self, url: str, most: int) -> bytes:
        for _ in range(MOST_REDIRECTS + 1):
            _check(url)
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status not in REDIRECTS:
                    return await _content(answer, most)
                url = urljoin(url, answer.headers.get("Location", ""))
        raise FetchFailed(f"it redirects more than {MOST_REDIRECTS} times")


async def _content(answer: aiohttp.ClientResponse, most: int) -> bytes:
    if answer.status != 200:
        raise FetchFailed(f"its server answered {answer.status}")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchFailed("its server sent it compressed")
    if (answer.content_length or 0) > most:
        raise FetchFailed(f"it is larger than {most} bytes")
    parts: list[bytes] = []
    size = 0
    async for piece in answer.content.iter_chunked(PIECE):
        size += len(piece)
        if size > most:
            raise FetchFailed(f"it is larger than {most} bytes")
        parts.append(piece)
    if not size:
        raise FetchFailed("it is empty")
    return b"".join(parts)


def _check(url: str) -> None:
    """Refuse an address by its form; the resolver checks the addresses of names."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise FetchFailed("it is no valid address") from None
    if parts.scheme != "https" or not parts.hostname:
        raise FetchFailed("only https addresses are fetched")
    if parts.username is not None or parts.password is not None:
        raise FetchFailed("an address with a user is not fetched")
    if (port or 443) not in PORTS:
        raise FetchFailed("only port 443 is fetched from")
    try:
        literal = ip_address(parts.hostname.partition("%")[0])
    except ValueError:
        return
    if not is_public(str(literal)):
        raise FetchFailed(NOT_PUBLIC)


class _PublicResolver(AbstractResolver):
    """Resolves names to public addresses; a name with any other address is refused as a whole."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if not found or not all(is_public(one["host"]) for one in found):
            raise FetchFailed(NOT_PUBLIC)
        return found

    async def close(self) -> Any:
        """Nothing is open."""
