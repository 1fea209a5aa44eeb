"""Writes the records of a backup into a store. Any topology takes them: each key goes to its own server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from gateway.backup.records import Part
from gateway.backup.store_dump import is_other
from gateway.ledger.gather_all import AT_ONCE, gather_bounded
from gateway.ledger.paging import scan_pages
from gateway.store import Store
from gateway.store.command import Argument
from gateway.store.identity import StoreIdentity

NAMES = 1000  # names per SCAN
MOST_BYTES = 4 * 2**20  # of commands without a reply

Command = tuple[Argument, ...]


async def is_empty(store: Store, *, besides: str) -> bool:
    """Whether no server has a key, other than those whose names begin with `besides`."""
    for link in store.links:
        async for page in scan_pages(link, "SCAN", count=NAMES):
            if not all(name.startswith(besides.encode()) for name in page):
                return False
    return True


async def load(store: Store, parts: Iterable[Part], *, name: Callable[[str], str] = str) -> int:
    """Write all parts, each to the key that `name` makes of its own; returns their number. No such key may exist.

    Keys that have expired since are left out.
    """
    seconds, _ = await store.link("").call("TIME")
    loaded = _Loaded(int(seconds) * 1000)
    for commands in _portions(loaded.commands(parts, name)):
        await gather_bounded(store.link(str(command[1])).call(*command) for command in commands)
    return loaded.parts


class _Loaded:
    def __init__(self, now: int) -> None:
        self._now = now  # Unix milliseconds
        self.parts = 0

    def commands(self, parts: Iterable[Part], name: Callable[[str], str]) -> Iterator[Command]:
        for part in parts:
            self.parts += 1
            if not part.expires or part.expires > self._now:
                key = name(part.key)
                if part.first and part.kind != "string" and is_other(part.key):
                    yield "DEL", key  # a backup may have a key twice: the later one counts
                yield from _commands(key, part)


def _portions(commands: Iterable[Command]) -> Iterator[list[Command]]:
    """At most `AT_ONCE` commands of about `MOST_BYTES`: a link takes fewer commands if they are large."""
    portion, size = list[Command](), 0
    for command in commands:
        portion.append(command)
        size += _size(command)
        if size >= MOST_BYTES or len(portion) >= AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _size(command: Command) -> int:
    """Bytes of the words, without numbers."""
    try:
        return sum(map(len, command))  # type: ignore[arg-type]
    except TypeError:
        return sum(len(word) for word in command if not isinstance(word, int | float))


async def write_identity(store: Store, identity: StoreIdentity) -> None:
    """Write who the store is: the last step, because a gateway does not use a store without it.

    A cluster's copies are written before the one that is read first.
    """
    for key in reversed(store.identity_keys):
        fields = ["deployment", identity.deployment, "schema", str(identity.schema)]
        if identity.peppers:
            fields += ["peppers", " ".join(identity.peppers)]
        await store.link(key).call("HSET", key, *fields)


def _commands(key: str, part: Part) -> list[Command]:
    values = part.values
    commands: list[Command] = []
    match part.kind:
        case "string":
            return [("SET", key, values[0], *(("PXAT", part.expires) if part.expires else ()))]
        case "hash":
            commands.append(("HSET", key, *values))
        case "set":
            commands.append(("SADD", key, *values))
        case "zset":
            pairs = zip(values[1::2], values[::2], strict=True)
            commands.append(("ZADD", key, *chain.from_iterable(pairs)))
        case "stream":
            commands += [("XADD", key, id_, *fields) for id_, fields in values]
    if part.expires:
        commands.append(("PEXPIREAT", key, part.expires))
    return commands
