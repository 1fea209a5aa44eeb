"""The links to the servers of a store, and the slot that keeps all keys of an account on one server.

`slot("acme")` is the prefix of all other keys of the account.
"""

from __future__ import annotations

from typing import Protocol

from gateway.store.link import RedisLink


class Links(Protocol):
    """The link to the server that holds a slot, and to every server."""

    @property
    def links(self) -> list[RedisLink]: ...

    def link(self, slot_key: str) -> RedisLink: ...


def slot(account: str) -> str:
    """The account's own key. Its braces put all keys of the account into one slot of a cluster."""
    return f"{{a:{account}}}"
