"""Reads sets and hashes of any size in pages, so that no read holds the store for long.

Sharp edge: a page is a moment of its own. An element that stays is always read, one that is added or removed meanwhile
may be read or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gateway.store.link import RedisLink

PAGE = 500  # elements per command: some 0.1 ms of Redis's time


async def scan_set(link: RedisLink, key: str) -> set[str]:
    """The members of a set; empty if there is none."""
    return {member.decode() for member in await _scan(link, "SSCAN", key)}


async def scan_hash(link: RedisLink, key: str, *, match: str = "*") -> dict[str, str]:
    """The fields of a hash whose names match a glob pattern; empty if there is none."""
    return {name.decode(): value.decode() for name, value in (await scan_pairs(link, key, match=match)).items()}


async def scan_pairs(link: RedisLink, key: str, *, match: str = "*") -> dict[bytes, bytes]:
    """`scan_hash` without decoding."""
    found = await _scan(link, "HSCAN", key, match=match)
    return dict(zip(found[::2], found[1::2], strict=True))


def first_pairs(link: RedisLink, key: str, *, match: str) -> asyncio.Future[Any]:
    """The first page of `scan_pairs`, which is all of a small hash, without a task; for `all_pairs`."""
    return link.call("HSCAN", key, "0", "MATCH", match, "COUNT", PAGE)


async def all_pairs(first: list[Any], link: RedisLink, key: str, *, match: str) -> dict[bytes, bytes]:
    """`scan_pairs` of a hash whose first page was read by `first_pairs`."""
    cursor, found = first
    if cursor != b"0":
        return await scan_pairs(link, key, match=match)
    return dict(zip(found[::2], found[1::2], strict=True))


async def scan_scores(link: RedisLink, key: str) -> dict[bytes, float]:
    """The members of a sorted set with their scores; empty if there is none."""
    found = await _scan(link, "ZSCAN", key)
    return {member: float(score) for member, score in zip(found[::2], found[1::2], strict=True)}


async def scan_pages(link: RedisLink, *command: str, match: str = "*", count: int = PAGE) -> AsyncIterator[list[bytes]]:
    """The pages of SCAN, or of SSCAN, HSCAN or ZSCAN and a key; an element may be in two of them."""
    cursor: bytes | str = "0"
    while True:
        cursor, page = await link.call(*command, cursor, "MATCH", match, "COUNT", count)
        if page:
            yield page
        if cursor == b"0":
            return


async def _scan(link: RedisLink, command: str, key: str, *, match: str = "*") -> list[bytes]:
    """All pages in one list; an element may be in it twice."""
    return [element async for page in scan_pages(link, command, key, match=match) for element in page]
