"""The ledger's Lua scripts, and the one hash slot in which everything of an account lives.

`Scripts.load()` reads gateway/ledger/lua once per process; a script is its own file with the shared parts it names put
before it. `slot("acme")` is the key that every other key of the account starts with.
"""

from __future__ import annotations

from importlib import resources
from typing import Protocol

from msgspec import Struct

from gateway.store.command import Script
from gateway.store.link import RedisLink

# Parts each script starts with; the others stand alone. No more than it needs: every call makes every function anew.
SHARED = {
    "admit": ("bucket", "meter", "hold", "line", "expired", "rules"),
    "explain": ("bucket", "meter", "hold", "rules"),
    "settle": ("bucket", "line"),
    "beat": ("hold",),
    "extend": ("hold",),
    "reclaim": ("hold", "line", "expired"),
    "credit": ("line",),
    "open": ("line",),
    "claim": ("hold", "line"),
}


class Links(Protocol):
    """What the ledger needs of the store: the link to the server that holds a slot."""

    def link(self, slot_key: str) -> RedisLink: ...


class Scripts(Struct, frozen=True):
    """Every script, by its file's name."""

    admit: Script
    settle: Script
    beat: Script
    extend: Script
    reclaim: Script
    credit: Script
    open: Script
    confirm: Script
    snapshot: Script
    compact: Script
    explain: Script

    @classmethod
    def load(cls) -> Scripts:
        """Read them from the package."""
        return cls(**{name: load_script(name) for name in cls.__struct_fields__})


def load_script(name: str) -> Script:
    """One script with its shared parts."""
    folder = resources.files("gateway.ledger") / "lua"
    parts = (*SHARED.get(name, ()), name)
    return Script("".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts))


def slot(account: str) -> str:
    """The account's own key, whose braces pin all of its keys to one slot of a cluster."""
    return f"{{a:{account}}}"
