"""The address of a client behind proxies: X-Forwarded-For, as far as trusted proxies wrote it.

A proxy appends the address that it saw. So the list is read from its end, and the first address that no trusted proxy
has is the client's. What stands before it may be invented by the client.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_READ = 2048  # characters at the end of X-Forwarded-For


@lru_cache(maxsize=8)
def networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """The networks of addresses and CIDR blocks; ValueError for any other text."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_trusted(address: str, trusted: Iterable[Network]) -> bool:
    """Whether a trusted network has the address."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in trusted)


def client_address(peer: str, forwarded_for: str, trusted: Iterable[Network]) -> str:
    """The client's address; `peer` if it is no trusted proxy or did not say a valid address."""
    trusted = tuple(trusted)
    found = peer
    for text in reversed(forwarded_for[-MAX_READ:].split(",")):
        if not is_trusted(found, trusted):
            break
        parsed = _parsed(_without_port(text.strip()))
        if parsed is None:
            break
        found = str(parsed)
    return found


def network_of(address: str) -> str:
    """The address; of IPv6 the first 64 bits, which one customer has. Other texts are returned unchanged."""
    if ":" not in address:
        return address
    parsed = _parsed(address)
    return parsed.exploded[:19] if isinstance(parsed, ipaddress.IPv6Address) else str(parsed or address)


def wider_network(network: str) -> str:
    """Of an IPv6 network of `network_of` the first 48 bits, which one customer may have; other texts are unchanged."""
    return network[:14] if len(network) == 19 and network.count(":") == 3 else network


def shortened(address: str) -> str:
    """The network of an address: the first 24 bits of IPv4, the first 48 of IPv6; "" for a text that is no address."""
    parsed = _parsed(address.partition("%")[0])
    if parsed is None:
        return ""
    bits = 24 if parsed.version == 4 else 48
    return str(ipaddress.ip_network(f"{parsed}/{bits}", strict=False))


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _parsed(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
