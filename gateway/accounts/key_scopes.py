"""Scopes of a key: the endpoints that it may call, and the addresses that it may be used from.

They are stored as one text, `ENDPOINT,…|NETWORK,…`; an empty part means no restriction. An admission answers with the
text of a restricted key. The worker checks it and asks again with the same text, so an edit in between is noticed, and
a key without scopes costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

from gateway.errors import KeyRestricted

Network = IPv4Network | IPv6Network


class Scopes(Struct, frozen=True):
    """The restrictions of one key; an empty tuple restricts nothing."""

    endpoints: tuple[str, ...] = ()
    addresses: tuple[Network, ...] = ()

    def text(self) -> str:
        """The stored form; empty without a restriction."""
        if not self.endpoints and not self.addresses:
            return ""
        return f"{','.join(self.endpoints)}|{','.join(map(str, self.addresses))}"


@lru_cache(maxsize=1024)
def read_scopes(text: str) -> Scopes:
    """Scopes from their stored form."""
    endpoints, _, addresses = text.partition("|")
    return Scopes(
        tuple(name for name in endpoints.split(",") if name),
        tuple(ip_network(name) for name in addresses.split(",") if name),
    )


def networks(names: Iterable[str]) -> tuple[Network, ...]:
    """Networks from CIDR texts; ValueError names one that is none."""
    return tuple(ip_network(name, strict=False) for name in names)


def check_scopes(text: str, address: str, endpoint: str = "") -> None:
    """Raise KeyRestricted if a key with these scopes may not call the endpoint from the address; "" is any endpoint."""
    scopes = read_scopes(text)
    if scopes.addresses and not _contains(scopes.addresses, address):
        raise KeyRestricted("This key may not be used from this address")
    if scopes.endpoints and endpoint and endpoint not in scopes.endpoints:
        raise KeyRestricted(f"This key may not use the endpoint {endpoint}")


def _contains(ranges: Iterable[Network], address: str) -> bool:
    try:
        client = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(client, "ipv4_mapped", None)
    return any((mapped or client) in network or client in network for network in ranges)
