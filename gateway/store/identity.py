"""The identity of a store: its deployment, the schema of its data, and the pepper its keys were hashed with.

It is a small hash, written once at the first start. A cluster has a copy in every 128th slot, so that every master
holds at least one. `StoreGuard` compares it at each connect: a server without it, or with another one, has lost its
data, or is the wrong server or database. Its connection is then not used, so that calls get 503 and not 401.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.store.command import text_fields
from gateway.store.known_text import KnownText
from gateway.store.slots import SLOTS, slot_of

IDENTITY = "cfg:identity"
PROBE = "cfg:probe"  # written to find out whether the server takes writes
SCHEMA = 1  # version of the layout of keys and values; a gateway refuses a later one
EVERY = 128  # slots of a cluster from one copy to the next

MISSING = (
    "the store has lost its identity: it was emptied, or is the wrong server or database. Check store.url, restore the "
    "data; if it is meant to be empty, start once with --accept-empty-store"
)
DIFFERENT = "the store belongs to another deployment ({found} instead of {known}). Check store.url and store.data_dir"
NEWER = "the store was written by a later version of the gateway (schema {found}; this version knows {known})"
PEPPER = (
    "the store's keys were hashed with another pepper. Restore the pepper, or set store.previous_pepper to the old one"
)
DEPLOYMENT_FILE = "deployment"
_DEPLOYMENT = re.compile(r"[0-9a-f]{32}", re.ASCII)


class StoreIdentity(Struct, frozen=True):
    """What is stored; `peppers` are fingerprints, two of them during a rotation, none before one was proved."""

    deployment: str
    schema: int = SCHEMA
    peppers: tuple[str, ...] = ()


def identity_of(reply: Any) -> StoreIdentity | None:
    """The identity in the reply of HGETALL; None if there is none."""
    fields = text_fields(reply)
    if not fields.get("deployment"):
        return None
    schema = fields.get("schema", "")
    return StoreIdentity(
        fields["deployment"], int(schema) if schema.isdigit() else SCHEMA, tuple(fields.get("peppers", "").split())
    )


class StoreGuard:
    """Which store a process expects.

    `deployment` is empty until it is known; it is learnt from the first server that has one. `peppers` are the
    fingerprints of this process's peppers; empty for commands that need none.
    """

    def __init__(self, *, deployment: str = "", peppers: Sequence[str] = (), accepts_empty: bool = False) -> None:
        self.deployment = deployment
        self.peppers = tuple(peppers)
        self.accepts_empty = accepts_empty  # a server without an identity is used, although one is known
        self.unproved = False  # the store has an identity, but no pepper's fingerprint yet

    def problem(self, found: StoreIdentity | None) -> str:
        """Why a server with this identity is not used, as a text for the operator; empty if it is right."""
        if found is None:
            return MISSING if self.deployment and not self.accepts_empty else ""
        if self.deployment and found.deployment != self.deployment:
            return DIFFERENT.format(found=found.deployment, known=self.deployment)
        if found.schema > SCHEMA:
            return NEWER.format(found=found.schema, known=SCHEMA)
        if self.peppers and found.peppers and not set(self.peppers) & set(found.peppers):
            return PEPPER
        self.deployment, self.unproved = found.deployment, not found.peppers
        return ""


def tagged(name: str, tag: str) -> str:
    """A key of that name with a hash tag of a cluster; without a tag the name itself."""
    return f"{name}:{{{tag}}}" if tag else name


@cache
def cluster_tags() -> tuple[str, ...]:
    """One hash tag for every `EVERY`th slot, in the order of the slots."""
    wanted, number, found = set(range(0, SLOTS, EVERY)), 0, dict[int, str]()
    while wanted:
        slot = slot_of(str(number))
        if slot in wanted:
            wanted.remove(slot)
            found[slot] = str(number)
        number += 1
    return tuple(found[slot] for slot in sorted(found))


def first_tag(slots: Iterable[int]) -> str | None:
    """The hash tag of the first of these slots that has one."""
    tags = cluster_tags()
    return next((tags[slot // EVERY] for slot in slots if slot % EVERY == 0), None)


def known_deployment(data_dir: Path) -> KnownText:
    """The deployment id of the store that a data directory belongs to, in a file beside the journal.

    An emptied store, or another one, is found by it. Sharp edge: a data directory without the file accepts any store.
    """
    return KnownText(data_dir / DEPLOYMENT_FILE, _DEPLOYMENT)
